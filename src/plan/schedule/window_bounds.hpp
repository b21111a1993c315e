#pragma once
// How early the rest of a fused dual batch can end, whatever is done: what the search for the best order drops orders by.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/compute_lane.hpp"
#include "plan/schedule/dual_batch.hpp"

namespace spillway {

/// Segments issued of the forward and the backward chain.
using WindowPlace = std::array<std::size_t, 2>;

/// What a partial order has come to, as far as its future depends on it.
struct PartialOrder {
  ComputeLane compute;
  Seconds network, copy_out;              ///< ends of lanes; copy_out: of every offload that may be issued
  std::array<Seconds, 2> ends;            ///< of the forward and the backward chain
  std::size_t offloads = 0, reloads = 0;  ///< issued
};

/// What remains of a window, alike for all orders that have come to the same place.
struct WindowRest {
  struct OnLane {
    Seconds work;                 ///< of both chains
    std::array<Seconds, 2> head;  ///< of each chain before its next segment on this lane; infinite where it has none
    Seconds tail;  ///< the smaller one of the chains' work after their last segments on this lane; likewise

    /// When a chain can need the lane again, at the earliest.
    Seconds needed(const PartialOrder& p) const { return std::min(p.ends[0] + head[0], p.ends[1] + head[1]); }
  };
  OnLane compute, network;
  std::array<Seconds, 2> total;  ///< of each chain
  Seconds offloads;              ///< those that may not be issued yet
  Seconds offload_path;          ///< of the forward chain to the end of these
};

/// Sums over what remains of a window. Prepared once per window; keeps its buffers.
class WindowBounds {
 public:
  void prepare(const DualBatch& batch);

  WindowRest rest(const WindowPlace& place) const;
  /// No order that begins with `begun` has a smaller makespan. For a complete order it is the makespan.
  Seconds least_makespan(const WindowRest& rest, const PartialOrder& begun) const;
  /// Raises lane ends to when a chain can need the lane again: the future stays the same, and orders that differ only in
  /// what nothing needs become equal.
  static void raise_lanes(const WindowRest& rest, PartialOrder& begun);

  /// Offloads that may be issued after `forward` segments.
  std::size_t offloads_ready(std::size_t forward) const { return offloads_ready_[forward]; }
  /// Of the offloads [from, to).
  Seconds offload_seconds(std::size_t from, std::size_t to) const { return offload_sums_[from] - offload_sums_[to]; }
  Seconds reload_seconds(std::size_t from, std::size_t to) const { return reload_sums_[from] - reload_sums_[to]; }

 private:
  static constexpr Seconds never{std::numeric_limits<double>::infinity()};
  struct OnLane {
    Seconds work;          ///< 0 where there is none
    Seconds head = never;  ///< of the chain before its next segment on this lane
    Seconds tail = never;  ///< of the chain after its last segment on this lane
  };
  /// Of one chain after its first n segments.
  struct Remaining {
    Seconds total;
    OnLane compute, network;
  };
  static void sum_up(const std::vector<Segment>& chain, std::vector<Remaining>& remaining);
  Seconds compute_bound(const WindowRest& rest, const PartialOrder& p) const;

  double lost_ = 0;                                  ///< of a second beside a copy or message
  std::array<std::vector<Remaining>, 2> remaining_;  ///< [chain][segments issued]
  std::vector<Seconds> offload_sums_, reload_sums_;  ///< [n]: from the n-th on
  std::vector<std::size_t> offloads_ready_;          ///< [forward segments issued]
  std::vector<Seconds> offload_path_;                ///< [forward segments issued]: to the end of offloads to come
};

}  // namespace spillway
