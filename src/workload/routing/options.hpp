#pragma once
// What a case says about expert loads.
#include <cstdint>
#include <string>

namespace spillway {

struct RoutingOptions {
  std::string preset = "burst";        ///< balanced, hot_experts, hot_rank, spread, empty, rotating, burst, trace
  std::string trace;                   ///< CSV of recorded loads (preset trace)
  std::uint64_t seed = 1;              ///< with iteration, layer and sequence number decides every choice
  std::int64_t reference_ranks = 4;    ///< hot blocks are E / reference_ranks experts each, whatever the layout
  double calm = 1.10;                  ///< imbalance of calm iterations at the reference layout, max/mean rows over ranks
  double burst_fraction = 0.029;       ///< share of iterations inside a burst, met exactly over whole periods
  std::int64_t burst_length = 20;      ///< iterations of one burst
  double peak = 2.6;                   ///< imbalance of a burst iteration at the reference layout
  double hot_share = 0.25;             ///< share of an iteration's sequences that are hot during a burst
  bool same_block = true;              ///< the hot block is the same in every layer
  double exchanges_per_token = 4.0;    ///< co-activation: 0 = cliques, many = uniform
  bool operator==(const RoutingOptions&) const = default;
};

}  // namespace spillway
