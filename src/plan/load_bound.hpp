#pragma once
// How much load one rank can meet.
#include <cstdint>

namespace spillway {

/// Where tokens choose distinct experts: see rank_load_bound.
struct ExpertSpread {
  std::int64_t experts = 1;  ///< E, a multiple of ranks
  std::int64_t chosen = 1;   ///< k experts of a token
  std::int64_t ranks = 1;    ///< EP, of an expert group
  bool operator==(const ExpertSpread&) const = default;
};

/// Most rows that a rank can receive, as a multiple of balance: EP x min(k, E / EP) / k. All tokens of the group send the
/// rank as many rows as it holds experts, but never more than k.
double rank_load_bound(const ExpertSpread& spread);

/// The same in rows, exactly: EP x min(k, E / EP) x the tokens of one rank.
std::int64_t most_rows(const ExpertSpread& spread, std::int64_t tokens_per_rank);

}  // namespace spillway
