#include "run/case_routing.hpp"

#include <fmt/format.h>

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
