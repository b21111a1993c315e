// Reducing gradients beside cool-down never costs the demo time, by the virtual clock, in any order of work.
#include "run/policy_run.hpp"
#include "run/projection.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

struct Projected {
  Seconds seconds, reduction, hidden;
};

/// Two iterations under the oracle.
Projected project_demo(std::vector<std::string> settings, bool overlap) {
  settings.push_back(fmt::format("parallel.overlap_gradients={}", overlap));
  const Case c = read_case({std::string(SPILLWAY_SOURCE_DIR) + "/inputs/runs/demo.toml", std::move(settings)});
  validate(c, 0);
  const auto routing = make_routing_source(c.routing, routing_problem(c));
  const MachineTime time(c.machine);
  const Schedule schedule = pipeline_schedule(c);
  Projection projection({c, *routing, schedule, time, "oracle"});
  Projected sum;
  for (int i = 0; i < 2; ++i) {
    const ProjectedIteration p = projection.run(i);
    sum.seconds += p.record.seconds;
    for (const RankIteration& r : p.ranks) {
      sum.reduction += r.gradient_reduction_seconds;
      sum.hidden += r.hidden_gradient_reduction_seconds;
    }
  }
  return sum;
}

TEST(OverlapOfGradients, NeverMakesAnIterationOfTheDemoLonger) {
  const std::vector<std::vector<std::string>> orders = {{},
                                                        {"parallel.virtual_stages=2"},
                                                        {"parallel.schedule=dual_batch"},
                                                        {"parallel.schedule=gpipe"},
                                                        {"parallel.expert_parallel=1"},
                                                        {"parallel.expert_parallel=1", "parallel.virtual_stages=2"},
                                                        {"parallel.data_parallel=2", "parallel.tensor_parallel=2"},
                                                        {"parallel.pipeline_parallel=1"}};
  for (const auto& settings : orders) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(settings, " ")));
    const Projected plain = project_demo(settings, false), beside = project_demo(settings, true);
    EXPECT_LT(beside.seconds, plain.seconds);
    EXPECT_GT(beside.hidden, plain.hidden);
    EXPECT_LE(beside.hidden, beside.reduction);
  }
}

}  // namespace
}  // namespace spillway::app
