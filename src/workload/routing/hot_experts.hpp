#pragma once
// Which experts are hot, and how many of a hot sequence's rows they take.
#include <cstdint>
#include <span>

#include "workload/routing/presets.hpp"
#include "workload/routing/routing_source.hpp"

namespace spillway {

/// Highest max/mean rows over `ranks` that k distinct experts per token allow: ranks * min(k, E / ranks) / k.
double rank_imbalance_bound(const RoutingProblem& problem, std::int64_t ranks);

/// Where the hot experts are looked up: the burst's number, or what moves a moving block.
struct HotPlace {
  std::int64_t layer = 0, move = 0;
};

class HotExperts {
 public:
  HotExperts(const Preset& preset, const RoutingOptions& options, const RoutingProblem& problem);

  /// Sets hot[e] to 1 for hot experts, to 0 for the others [num_experts].
  void mark(HotPlace place, std::span<std::uint8_t> hot) const;
  /// Rows of the hot experts together in the n-th sequence of a micro-batch: whole numbers whose sums over the first
  /// sequences are within one row of the asked multiple.
  std::int64_t rows(std::int64_t nth) const;
  /// Experts that mark() marks.
  std::int64_t count() const;

 private:
  HotSet kind_;
  std::uint64_t seed_;
  bool same_block_;
  std::int64_t ranks_, block_;  ///< reference ranks, experts per block
  std::int64_t rows_fixed_;     ///< rows per sequence in units of 2^-20
};

}  // namespace spillway
