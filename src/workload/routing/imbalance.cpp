#include "workload/routing/imbalance.hpp"

#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace spillway {

double unit_imbalance(std::span<const std::int64_t> rows, std::int64_t ranks) {
  const auto layers = static_cast<std::int64_t>(rows.size()) / ranks;
  double sum = 0;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto row = rows.subspan(layer * ranks, ranks);
    const std::int64_t total = std::accumulate(row.begin(), row.end(), std::int64_t{0});
    const std::int64_t max = *std::max_element(row.begin(), row.end());
    sum += total > 0 ? static_cast<double>(max * ranks) / static_cast<double>(total) : 1.0;
  }
  return layers > 0 ? sum / static_cast<double>(layers) : 1.0;
}

void add_rows_per_rank(std::span<const std::int32_t> experts, std::span<std::int64_t> ranks) {
  const std::size_t block = experts.size() / ranks.size();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const std::int32_t rows : experts.subspan(r * block, block)) ranks[r] += rows;
  }
}

Grouping reference_grouping(const RoutingOptions& options, const RoutingProblem& problem) {
  std::int64_t sequences = options.reference_sequences;
  if (sequences == 0) {
    sequences = std::min(options.reference_ranks, problem.sequences_per_iteration);
    while (problem.sequences_per_iteration % sequences != 0) --sequences;
  }
  return {options.reference_ranks, sequences, options.reference_stages};
}

ImbalanceStatistics iteration_imbalance(const RoutingSource& source, const RoutingProblem& problem,
                                        const Grouping& grouping, std::int64_t iteration) {
  ensure(problem.num_experts % grouping.ranks == 0 && problem.sequences_per_iteration % grouping.sequences == 0,
         "{} experts over {} ranks, {} sequences in groups of {}", problem.num_experts, grouping.ranks,
         problem.sequences_per_iteration, grouping.sequences);
  ImbalanceStatistics statistics;
  std::vector<std::int32_t> experts(problem.num_experts);
  std::vector<std::int64_t> rows;  // [layers of the stage, ranks]
  for (std::int64_t first = 0; first < problem.sequences_per_iteration; first += grouping.sequences) {
    std::int64_t layer = 0;
    for (std::int64_t stage = 0; stage < grouping.stages; ++stage) {
      rows.clear();
      for (; layer < problem.num_layers && layer * grouping.stages / problem.num_layers == stage; ++layer) {
        rows.resize(rows.size() + grouping.ranks, 0);
        const auto row = std::span(rows).last(grouping.ranks);
        for (std::int64_t sequence = first; sequence < first + grouping.sequences; ++sequence) {
          source.rows_per_expert({iteration, layer, sequence}, experts);
          add_rows_per_rank(experts, row);
        }
      }
      statistics.add(unit_imbalance(rows, grouping.ranks));
    }
  }
  return statistics;
}

}  // namespace spillway
