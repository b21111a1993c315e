#include "run/case_routing.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "workload/routing/coactivation.hpp"
#include "workload/routing/presets.hpp"

namespace spillway {

std::unique_ptr<RoutingSource> case_routing(const Case& c, Trace recording) {
  RoutingProblem problem = routing_problem(c);
  if (find_preset(c.routing.preset).recorded)
    return std::make_unique<TraceRouting>(std::move(recording), c.routing, problem);
  if (c.model.moe_layers() > 0) return make_routing_source(c.routing, problem);
  problem.num_experts = problem.num_experts_per_tok = 1;
  RoutingOptions none;
  none.preset = "balanced";
  none.reference_ranks = 1;
  return make_routing_source(none, problem);
}

std::uint64_t workload_checksum(const Case& c, const RoutingSource& routing, std::int64_t part, std::int64_t parts,
                                const std::function<void()>& touch) {
  const RoutingProblem problem = routing_problem(c);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < c.training.iterations; ++i)
    for (std::int64_t layer = c.model.first_k_dense_replace; layer < c.model.num_hidden_layers; ++layer)
      for (std::int64_t g = part; g < c.global_batch(); g += parts) {
        touch();
        sum += workload_hash(routing, problem, {i, layer, g});
      }
  return sum;
}

CoactivationFigures measure_coactivation(const Case& c, const RoutingSource& routing, std::span<const int> node_of_rank,
                                         const std::function<void()>& touch) {
  CoactivationFigures figures;
  if (c.model.moe_layers() == 0) return figures;
  const Grid grid(c.grid);
  std::vector<int> nodes(static_cast<std::size_t>(grid.expert()));
  for (int i = 0; i < grid.expert(); ++i) nodes[i] = node_of_rank[grid.expert_rank(0, 0, i)];
  std::sort(nodes.begin(), nodes.end());
  const NodeBlocks blocks{c.model.num_experts, std::unique(nodes.begin(), nodes.end()) - nodes.begin()};
  const bool divides = c.model.num_experts % blocks.nodes == 0;
  const std::int64_t k = c.model.num_experts_per_tok, sequences = c.grid.data_parallel * c.training.micro_batch_size;
  double ochiai = 0, distinct = 0;
  std::vector<std::int32_t> choices(c.training.sequence_length * k);
  for (std::int64_t layer = c.model.first_k_dense_replace; layer < c.model.num_hidden_layers; ++layer) {
    Coactivation pairs(c.model.num_experts);
    for (std::int64_t g = 0; g < sequences; ++g) {
      touch();
      routing.choices({0, layer, g}, choices);
      pairs.add(choices, k);
      if (divides) distinct += distinct_nodes_per_token(choices, k, blocks) / static_cast<double>(sequences);
    }
    ochiai += pairs.ochiai_mean();
  }
  const auto layers = static_cast<double>(c.model.moe_layers());
  figures.ochiai = ochiai / layers;
  if (divides) figures.distinct_nodes = distinct / layers;
  return figures;
}

std::int64_t first_burst(const Case& c, const RoutingSource& routing) {
  for (std::int64_t i = 0; i < c.training.iterations && c.model.moe_layers() > 0; ++i)
    if (routing.in_burst(i)) return i;
  return 0;
}

std::vector<std::string> case_warnings(const Case& c, const RoutingSource& routing) {
  std::vector<std::string> warnings;
  bool burst = c.routing.preset != "burst" || c.routing.burst_fraction == 0;
  for (std::int64_t i = 0; i < c.training.iterations && !burst; ++i) burst = routing.in_burst(i);
  if (!burst) warnings.push_back(fmt::format("none of the {} iterations lies in a burst", c.training.iterations));
  if (std::string stages = stages_not_fused(c); !stages.empty()) warnings.push_back(std::move(stages));
  return warnings;
}

}  // namespace spillway
