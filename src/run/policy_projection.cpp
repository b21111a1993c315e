#include "run/policy_projection.hpp"

#include <algorithm>

#include "plan/cost/time_model.hpp"
#include "plan/restart_protocol.hpp"
#include "run/policy_run.hpp"

namespace spillway {
namespace {

Projection::Setup setup_of(const ProjectionSetting& s, const std::string& policy) {
  return {s.run_case, s.routing, s.schedule, s.time, policy};
}

/// Every rank's policy with its part of the decisions. Without decisions: the table's.
Projection::PolicyOf carried_out(const std::string& policy, const JobDecisions& decisions, const Case& c) {
  if (decisions.empty()) return {};
  return [&policy, &decisions, &c](int rank) {
    PolicyOptions options = c.provisioning.options;
    options.decisions = {std::shared_ptr<void>(), &decisions[static_cast<std::size_t>(rank)]};  // not owned
    return make_policy(policy, options);
  };
}

/// The peaks of a life of the ranks, before it ends.
void note_peaks(const Projection& projection, std::vector<RankRecord>& ranks, bool shared_memory) {
  for (RankRecord& rank : ranks) {
    rank.peak.include(projection.ledger(rank.rank));
    if (!shared_memory)
      rank.peak_host_bytes =
          std::max(rank.peak_host_bytes.value_or(Bytes(0)), projection.host_ledger(rank.rank).peak());
  }
}

}  // namespace

PolicyRun project_policy(const ProjectionSetting& s, const std::string& policy, std::int64_t iterations,
                         const JobDecisions& decisions) {
  const Case& c = s.run_case;
  PolicyRun run;
  run.policy = policy;
  run.infeasible = infeasibility(c, s.schedule, policy);
  if (run.infeasible) return run;
  const Grid grid(c.grid);
  for (int r = 0; r < grid.ranks(); ++r) {
    run.ranks.push_back(record_of(grid, r));
    run.ranks.back().host = fmt::format("node{}", node_of(c.machine, r));
  }

  RestartProtocol protocol({c.provisioning.calm_imbalance, static_cast<int>(c.provisioning.calm_iterations)});
  const auto start = [&](bool conservative) {
    if (conservative) return std::make_unique<Projection>(setup_of(s, c.provisioning.fallback));
    return std::make_unique<Projection>(setup_of(s, policy), carried_out(policy, decisions, c));
  };
  auto projection = start(false);
  Seconds job_time;
  bool restarted = false;
  std::int64_t snapshot = 0, iteration = 0;
  const auto restart = [&](bool conservative) {
    note_peaks(*projection, run.ranks, c.machine.shared_memory);
    projection = start(conservative);
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
    for (RankRecord& rank : run.ranks) rank.iterations.push_back(projected.ranks[static_cast<std::size_t>(rank.rank)]);
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
  note_peaks(*projection, run.ranks, c.machine.shared_memory);
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
