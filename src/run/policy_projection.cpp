#include "run/policy_projection.hpp"

#include <algorithm>

#include "plan/restart_protocol.hpp"
#include "run/policy_run.hpp"

namespace spillway {
namespace {

Projection::Setup setup_of(const ProjectionSetting& s, const std::string& policy) {
  return {s.run_case, s.routing, s.schedule, s.time, policy};
}

}  // namespace

PolicyRun project_policy(const ProjectionSetting& s, const std::string& policy, std::int64_t iterations) {
  const Case& c = s.run_case;
  PolicyRun run;
  run.policy = policy;
  run.infeasible = infeasibility(c, s.schedule, policy);
  if (run.infeasible) return run;
  const int ranks = Grid(c.grid).ranks();
  run.ranks.resize(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) run.ranks[static_cast<std::size_t>(r)].rank = r;

  RestartProtocol protocol({c.provisioning.calm_imbalance, static_cast<int>(c.provisioning.calm_iterations)});
  auto projection = std::make_unique<Projection>(setup_of(s, policy));
  Seconds job_time;
  bool restarted = false;
  std::int64_t snapshot = 0, iteration = 0;
  const auto restart = [&](bool conservative) {
    projection = std::make_unique<Projection>(setup_of(s, conservative ? c.provisioning.fallback : policy));
    restarted = true;
    job_time += c.machine.restart_seconds;
  };
  while (iteration < iterations) {
    ProjectedIteration projected = projection->run(iteration);
    IterationRecord& record = projected.record;
    record.start = job_time;
    job_time += record.charged_seconds();
    record.policy = protocol.conservative() ? c.provisioning.fallback : policy;
    record.conservative = protocol.conservative();
    record.restarted = std::exchange(restarted, false);
    run.iterations.push_back(record);
    for (int r = 0; r < ranks; ++r)
      run.ranks[static_cast<std::size_t>(r)].iterations.push_back(projected.ranks[static_cast<std::size_t>(r)]);
    if (!record.completed()) {
      if (!protocol.out_of_memory(iteration) || infeasibility(c, s.schedule, c.provisioning.fallback)) {
        run.reasons.push_back(
            fmt::format("iteration {} ran out of memory and there is nothing to fall back to", iteration));
        break;
      }
      restart(true);
      iteration = snapshot;
      continue;
    }
    ++iteration;
    const bool return_now = protocol.completed(record.index, record.imbalance) && iteration < iterations;
    if (return_now || iteration % c.training.checkpoint_every == 0) snapshot = iteration;
    if (return_now) restart(false);
  }
  return run;
}

std::vector<Seconds> project_seconds(const ProjectionSetting& s, const std::string& policy, std::int64_t iterations) {
  std::vector<Seconds> seconds;
  Projection projection(setup_of(s, policy));
  for (std::int64_t i = 0; i < iterations; ++i) {
    const IterationRecord record = projection.run(i).record;
    if (!record.completed()) break;
    seconds.push_back(record.seconds);
  }
  return seconds;
}

}  // namespace spillway
