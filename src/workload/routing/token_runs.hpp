#pragma once
// Tokens of a rank where tensor-parallel ranks divide the tokens of a micro-batch: parts of sequences.
#include <vector>

#include "workload/routing/routing_source.hpp"

namespace spillway {

/// Consecutive tokens [first, first + count) of one sequence.
struct TokenRun {
  std::int64_t sequence = 0, first = 0, count = 0;
  bool operator==(const TokenRun&) const = default;
};

/// Tokens [first, first + count) of sequences `sequence`, `sequence` + 1, ... of `length` tokens each, counted through.
std::vector<TokenRun> token_runs(std::int64_t sequence, std::int64_t length, std::int64_t first, std::int64_t count);

/// Experts of the runs' tokens [tokens, k] in one layer. `key.sequence` is not looked at.
std::vector<std::int32_t> choices_of(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key,
                                     const std::vector<TokenRun>& runs);

/// Rows per expert [num_experts] of the same tokens: from totals where a run is a whole sequence.
std::vector<std::int64_t> rows_of(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key,
                                  const std::vector<TokenRun>& runs);

}  // namespace spillway
