#pragma once
// Recorded loads as routing.
//
// File: CSV with the header "iteration,layer,rank,tokens", one line for every (iteration, layer, rank), each numbered
// from 0 without gaps, in any order; ranks a multiple of four.
// Mapping (ours, not the recording's): experts come in four blocks, and rank r of the recording is taken to hold a copy
// of block r mod 4. The tokens of ranks of one block are summed; every sequence sends its s * k rows to the blocks in
// proportion (largest remainder); block b is the case's experts [b E/4, (b+1) E/4), which share it evenly. Iterations and
// layers beyond the recording start again from its first.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workload/routing/deal.hpp"

namespace spillway {

struct Trace {
  static constexpr std::int64_t blocks = 4;
  std::int64_t iterations = 0, layers = 0;
  std::vector<std::int64_t> tokens;  ///< [iterations, layers, blocks]

  /// Tokens per block of a layer, wrapping around.
  std::span<const std::int64_t> at(std::int64_t iteration, std::int64_t layer) const {
    return std::span(tokens).subspan((iteration % iterations * layers + layer % layers) * blocks, blocks);
  }
};

/// InputError with `name` and the line number for anything that is not the format above: wrong header, malformed,
/// repeated or missing lines, layers without tokens.
Trace parse_trace(std::string_view text, std::string_view name);
/// Reads and parses a file.
Trace read_trace(const std::string& path);

class TraceRouting final : public DealtRouting {
 public:
  /// InputError where four does not divide the experts, or where a block of the trace has more rows than k distinct
  /// experts per token allow.
  TraceRouting(Trace trace, const RoutingOptions& options, const RoutingProblem& problem);

  void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const override;
  bool in_burst(std::int64_t) const override { return false; }

 private:
  Trace trace_;
};

}  // namespace spillway
