#include "run/projected_experiment.hpp"

#include "base/error.hpp"
#include "metrics/atomic_file.hpp"
#include "plan/cost/time_model.hpp"
#include "run/case_routing.hpp"
#include "run/decision_record.hpp"
#include "run/experiment.hpp"
#include "run/hindsight.hpp"
#include "run/margin_curve.hpp"
#include "run/policy_projection.hpp"
#include "run/policy_run.hpp"
#include "workload/routing/presets.hpp"

namespace spillway {
namespace {

/// What replay and hindsight carry out; empty for other policies.
JobDecisions decisions_for(const std::string& policy, const ProjectionSetting& setting) {
  const Case& c = setting.run_case;
  if (policy == "hindsight" && !infeasibility(c, setting.schedule, policy)) return find_hindsight(setting);
  JobDecisions decisions;
  if (policy != "replay") return decisions;
  const std::string& file = c.provisioning.options.replay_file;
  const std::string text = read_text(file);
  const ReplayScope scope = replay_scope(c);
  for (int rank = 0; rank < scope.grid.ranks(); ++rank) decisions.push_back(read_decisions(text, file, scope, rank));
  return decisions;
}

}  // namespace

Report project_experiment(const Case& c) {
  ensure(c.clock == ClockKind::virtual_time, "a projection has no wall clock");
  const MachineTime time(c.machine);
  const bool recorded = find_preset(c.routing.preset).recorded;
  const auto routing = case_routing(c, recorded ? read_trace(c.routing.trace) : Trace{});
  const Schedule schedule = pipeline_schedule(c);

  Report report = report_of(c);
  report.phantom_data = true;
  report.environment["compiler"] = __VERSION__;
  report.environment["row_tile"] = row_tile;
  report.environment["warnings"] = case_warnings(c, *routing);
  report.workload_checksum = workload_checksum(c, *routing, 0, 1, [] {});
  const ProjectionSetting setting{c, *routing, schedule, time};
  std::vector<int> nodes(static_cast<std::size_t>(report.facts.ranks));
  for (int rank = 0; rank < report.facts.ranks; ++rank) nodes[rank] = node_of(c.machine, rank);
  const CoactivationFigures measured = measure_coactivation(c, *routing, nodes, [] {});
  for (const std::string& policy : c.provisioning.policies) {
    report.runs.push_back(project_policy(setting, policy, c.training.iterations, decisions_for(policy, setting)));
    report.runs.back().ochiai_mean = measured.ochiai;
    report.runs.back().distinct_nodes_per_token = measured.distinct_nodes;
  }
  report.margins = project_margins(setting);
  return report;
}

}  // namespace spillway
