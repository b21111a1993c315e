#pragma once
// The imbalance of an iteration: max and mean over (expert group, micro-batch) of the mean over a stage's layers of
// max/mean rows over the ranks of the group.
#include <algorithm>
#include <cstdint>
#include <span>

#include "workload/routing/routing_source.hpp"

namespace spillway {

/// Mean over layers of max/mean over ranks, of one (expert group, micro-batch). rows [layers, ranks]. A layer without
/// any rows counts as even (1).
double unit_imbalance(std::span<const std::int64_t> rows, std::int64_t ranks);

/// Max and mean over the (expert group, micro-batch) units added so far; both 0 before the first.
struct ImbalanceStatistics {
  double max = 0, mean = 0;
  std::int64_t units = 0;

  void add(double imbalance) {
    max = std::max(max, imbalance);
    mean += (imbalance - mean) / static_cast<double>(++units);
  }
};

/// Which sequences, ranks and layers meet in one unit.
struct Grouping {
  std::int64_t ranks = 1;      ///< of an expert group; expert e lives on rank e * ranks / num_experts
  std::int64_t sequences = 1;  ///< of one micro-batch of an expert group, consecutive in data order
  std::int64_t stages = 1;     ///< pipeline stages: layer l belongs to stage l * stages / num_layers
  bool operator==(const Grouping&) const = default;
};

/// Adds rows of experts [num_experts] to the rows of the ranks [ranks] that hold them: equal contiguous blocks.
void add_rows_per_rank(std::span<const std::int32_t> experts, std::span<std::int64_t> ranks);

/// The grouping at which `calm` and `peak` are met: a function of options and global batch.
Grouping reference_grouping(const RoutingOptions& options, const RoutingProblem& problem);

/// Imbalance of one iteration under a static contiguous expert layout. grouping.ranks must divide num_experts,
/// grouping.sequences the global batch.
ImbalanceStatistics iteration_imbalance(const RoutingSource& source, const RoutingProblem& problem,
                                        const Grouping& grouping, std::int64_t iteration);

}  // namespace spillway
