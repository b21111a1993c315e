#pragma once
// A policy over a whole workload without data: iterations, out-of-memory events and restarts as policy_run has them.
#include "metrics/step_record.hpp"
#include "plan/policy/decision_table.hpp"
#include "run/projection.hpp"

namespace spillway {

/// A decision table for every rank.
using JobDecisions = std::vector<DecisionTable>;

/// What projections of one case share.
struct ProjectionSetting {
  const Case& run_case;
  const RoutingSource& routing;
  const Schedule& schedule;
  const device::TimeModel& time;
};

/// The first `iterations` of a policy. Records without loss and checksum, which need data. An infeasible policy says why.
/// `decisions`: those that replay and hindsight carry out.
PolicyRun project_policy(const ProjectionSetting& setting, const std::string& policy, std::int64_t iterations,
                         const JobDecisions& decisions = {});

/// Seconds of every iteration under a policy that is never interrupted; stops at the first that runs out of memory.
std::vector<Seconds> project_seconds(const ProjectionSetting& setting, const std::string& policy,
                                     std::int64_t iterations);

}  // namespace spillway
