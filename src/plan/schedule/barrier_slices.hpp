#pragma once
// Fused dual-batch execution as published, for comparison: slices of work with a barrier after each.
#include <vector>

#include "plan/schedule/dual_batch.hpp"

namespace spillway {

struct BarrierInterleaving {
  IssueOrder order;
  std::vector<std::size_t> slice_ends;  ///< segments issued before each barrier
  Seconds makespan;                     ///< sum over slices
};

/// Seconds of one slice: the largest sum of durations on a lane, times the interference factor where more than one lane
/// works.
Seconds slice_seconds(const DualBatch& batch, std::span<const Segment> slice);

/// The least makespan of slices that take at most one segment of each chain, where an offload is in a later slice than
/// what it needs: dynamic programming over the segments issued of each chain, f[i][j][k][l] (BaGuaLu-2, arXiv 2610.23064,
/// whose time of a slice is not given; slice_seconds is our reconstruction). Throws as validate(batch).
BarrierInterleaving interleave_with_barriers(const DualBatch& batch);

}  // namespace spillway
