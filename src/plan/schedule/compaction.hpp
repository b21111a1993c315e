#pragma once
// Joins the operators of a fused dual batch into segments, so that the search for their order stays small.
#include <array>
#include <span>
#include <vector>

#include "plan/schedule/dual_batch.hpp"

namespace spillway {

/// Operators [begin, end) of a chain.
struct OperatorRange {
  int begin = 0, end = 0;
  bool operator==(const OperatorRange&) const = default;
};

struct Compaction {
  DualBatch batch;  ///< of segments
  /// [chain][segment]: the operators that it stands for
  std::array<std::vector<OperatorRange>, chain_count> operators;
};

struct CompactionOptions {
  /// Longest joined segment, as a fraction of the window's ideal time (the larger of its computation and its
  /// communication). Shorter segments overlap better and take longer to order. 0 joins nothing.
  double longest = 1.0 / 16;
};

/// Joins neighbouring compute operators of the forward and of the backward chain as long as they stay within the longest
/// segment. A longer operator, a message and a copy are segments of their own, and a segment ends where an offload needs
/// what came before, so that offloads lose nothing. Throws as validate(operators).
Compaction compact(const DualBatch& operators, const CompactionOptions& options = {});

/// The order of issue of the operators that follows from an order of the segments.
IssueOrder expand(const Compaction& compaction, std::span<const ChainId> order);

}  // namespace spillway
