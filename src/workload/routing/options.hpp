#pragma once
// What a case says about expert loads. Presets and which of these options act on each: presets.hpp.
#include <cstdint>
#include <string>

namespace spillway {

/// The *reference layout* (reference_ranks, reference_sequences, reference_stages) is where `calm` and `peak` are met. It
/// belongs to the workload: cases that differ only in their own layout keep it and so get the same routing.
struct RoutingOptions {
  std::string preset = "burst";      ///< balanced, hot_experts, hot_rank, spread, empty, rotating, burst, trace
  std::string trace;                 ///< CSV of recorded loads (preset trace)
  std::uint64_t seed = 1;            ///< with iteration, layer and sequence number decides every choice
  std::int64_t reference_ranks = 4;  ///< hot blocks are E / reference_ranks experts each, whatever the layout
  /// Sequences of one micro-batch of a reference expert group; 0: the largest divisor of the global batch that is at
  /// most reference_ranks (one sequence per rank where that divides).
  std::int64_t reference_sequences = 0;
  std::int64_t reference_stages = 1;  ///< pipeline stages: an imbalance is a mean over the layers of one stage
  double calm = 1.10;              ///< imbalance of calm iterations at the reference layout, max/mean rows over ranks
  double burst_fraction = 0.029;   ///< share of iterations inside a burst, met exactly over whole periods
  std::int64_t burst_length = 20;  ///< iterations of one burst
  double peak = 2.6;               ///< imbalance of a burst iteration at the reference layout
  double hot_share = 0.25;         ///< share of an iteration's sequences that are hot during a burst
  bool same_block = true;          ///< the hot experts are the same in every layer
  /// Co-activation: 0 = as many tokens as the totals allow choose whole cliques of k experts, 4 or more = uniform.
  double exchanges_per_token = 4.0;
  bool operator==(const RoutingOptions&) const = default;
};

}  // namespace spillway
