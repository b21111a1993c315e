#include "run/margin_curve.hpp"

#include <mpi.h>

#include <algorithm>

#include "metrics/lost_seconds.hpp"

namespace spillway {
namespace {

/// Policies whose plan depends on the load it is made for.
std::vector<std::string> planners(const Case& c) {
  std::vector<std::string> names;
  for (const std::string& name : c.provisioning.policies)
    if (make_policy(name, c.provisioning.options)->plans_for_load()) names.push_back(name);
  return names;
}

MarginPoint project(const ProjectionSetting& s, const std::string& policy, double margin) {
  Case planned = s.run_case;
  planned.provisioning.margin = margin;
  planned.provisioning.options.worst_load = margin;
  const PolicyRun run = project_policy({planned, s.routing, s.schedule, s.time}, policy, planned.training.iterations);
  MarginPoint point{policy, margin, std::nullopt, 0, 0};
  if (run.infeasible) return point;
  const std::vector<bool> counts = completed_iterations(run);
  for (const IterationRecord& i : run.iterations) point.oom_events += i.completed() ? 0 : 1;
  point.restarts = count_restarts(run);
  if (run.reasons.empty())
    point.tokens_per_second = static_cast<double>(std::count(counts.begin(), counts.end(), true)) *
                              static_cast<double>(planned.tokens_per_iteration()) /
                              all_seconds(run, planned.machine.restart_seconds).value;
  return point;
}

/// What is to be projected.
std::vector<MarginPoint> points(const Case& c) {
  std::vector<MarginPoint> curve;
  for (const std::string& policy : planners(c))
    for (const double margin : c.provisioning.margins) curve.push_back({policy, margin, std::nullopt, 0, 0});
  return curve;
}

}  // namespace

std::vector<MarginPoint> project_margins(const ProjectionSetting& s) {
  std::vector<MarginPoint> curve = points(s.run_case);
  for (MarginPoint& point : curve) point = project(s, point.policy, point.margin);
  return curve;
}

std::vector<MarginPoint> project_margins(const ProjectionSetting& s, const Session& session) {
  std::vector<MarginPoint> curve = points(s.run_case);
  // [tokens per second or -1, out-of-memory events, restarts] of every point, each filled in by one rank
  std::vector<double> figures(3 * curve.size(), 0);
  for (std::size_t i = static_cast<std::size_t>(session.rank()); i < curve.size();
       i += static_cast<std::size_t>(session.world())) {
    const MarginPoint point = project(s, curve[i].policy, curve[i].margin);
    figures[3 * i] = point.tokens_per_second.value_or(-1);
    figures[3 * i + 1] = static_cast<double>(point.oom_events);
    figures[3 * i + 2] = static_cast<double>(point.restarts);
  }
  MPI_Allreduce(MPI_IN_PLACE, figures.data(), static_cast<int>(figures.size()), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (figures[3 * i] >= 0) curve[i].tokens_per_second = figures[3 * i];
    curve[i].oom_events = static_cast<long long>(figures[3 * i + 1]);
    curve[i].restarts = static_cast<long long>(figures[3 * i + 2]);
  }
  return curve;
}

}  // namespace spillway
