#include "run/experiment.hpp"

#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "device/gemm.hpp"
#include "run/case_routing.hpp"
#include "run/margin_curve.hpp"
#include "run/policy_run.hpp"
#include "run/text_gather.hpp"
#include "run/verify.hpp"
#include "workload/routing/presets.hpp"

namespace spillway {
namespace {

/// One rank reads the recording, all replay it.
std::unique_ptr<RoutingSource> shared_routing(const Case& c, const Session& session) {
  Trace trace;
  if (find_preset(c.routing.preset).recorded) {
    nlohmann::json packed;
    if (session.rank() == 0) {
      trace = read_trace(c.routing.trace);
      packed = {trace.iterations, trace.layers, trace.tokens};
    }
    packed = nlohmann::json::parse(session.broadcast(packed.dump()));
    trace = {packed.at(0), packed.at(1), packed.at(2)};
  }
  return case_routing(c, std::move(trace));
}

/// Sum over all iterations, layers and sequences; every rank takes its part of the sequences.
std::uint64_t shared_workload_checksum(const Case& c, const RoutingSource& routing, const Session& session,
                                       Watchdog& watchdog) {
  std::uint64_t sum = workload_checksum(c, routing, session.rank(), session.world(),
                                        [&watchdog] { watchdog.touch("workload checksum"); });
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

nlohmann::ordered_json environment(const Session& session, const Case& c, const RoutingSource& routing) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string mpi(version, static_cast<std::size_t>(length));
  nlohmann::ordered_json e;
  e["mpi"] = mpi.substr(0, mpi.find_first_of(",\n"));
  e["kokkos"] = fmt::format("{}.{}.{}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100);
  e["execution_space"] = Kokkos::DefaultExecutionSpace::name();
  e["gemm"] = device::gemm_library();
  e["compiler"] = __VERSION__;
  e["row_tile"] = device::row_tile;
  e["threads_per_rank"] = session.threads();
  e["network_thread"] = has_network_thread(c, session);
  e["ranks_on_first_node"] = session.facts().ranks_on_this_node;
  e["cores_on_first_node"] = session.facts().cores_on_this_node;
  nlohmann::ordered_json warnings = nlohmann::ordered_json::array();
  if (session.facts().ranks_on_this_node > session.facts().cores_on_this_node)
    warnings.push_back(
        fmt::format("{} ranks share {} cores of a node{}", session.facts().ranks_on_this_node,
                    session.facts().cores_on_this_node,
                    c.clock == ClockKind::wall ? ": wall-clock figures of this run are no benchmark" : ""));
  for (std::string& w : case_warnings(c, routing)) warnings.push_back(std::move(w));
  e["warnings"] = warnings;
  return e;
}

/// Policies that ran the same iteration must have found the same gradients, bit for bit, unless one quantizes.
void compare_checksums(Report& report, const RunContext& context) {
  PolicyOptions options = context.run_case.provisioning.options;
  options.decisions = context.replayed;
  const PolicyRun* reference = nullptr;
  for (const PolicyRun& run : report.runs) {
    if (run.infeasible || run.iterations.empty()) continue;
    if (!make_policy(run.policy, options)->exact()) continue;
    if (reference == nullptr) {
      reference = &run;
      continue;
    }
    for (const IterationRecord& mine : run.iterations)
      for (const IterationRecord& theirs : reference->iterations)
        if (mine.index == theirs.index && mine.completed() && theirs.completed() &&
            mine.gradient_checksum != theirs.gradient_checksum) {
          report.reasons.push_back(
              fmt::format("iteration {}: the gradients of {} differ from those of {} (checksums {:016x}, {:016x})",
                          mine.index, run.policy, reference->policy, *mine.gradient_checksum,
                          *theirs.gradient_checksum));
          return;
        }
  }
}

/// Rank 0 receives the lines of all ranks, one rank after the other.
void collect(std::vector<std::string>& lines, const Session& session) {
  std::string mine;
  for (const std::string& line : lines) mine += line + '\n';
  lines.clear();
  gather_texts(mine, session, [&lines](int, std::string_view piece) { lines.emplace_back(piece); });
}

/// Rank 0's list of reasons decides for everybody.
void share_reasons(Report& report, const Session& session) {
  nlohmann::json list = invalid_reasons(report);
  const auto shared = nlohmann::json::parse(session.broadcast(list.dump()));
  if (session.rank() != 0) report.reasons = shared.get<std::vector<std::string>>();
}

}  // namespace

Report report_of(const Case& c) {
  Report report;
  report.virtual_clock = c.clock == ClockKind::virtual_time;
  report.case_name = c.name;
  report.machine = c.machine.name;
  const TokenFlops flops = model_flops_per_token(c.model, c.training.sequence_length);
  report.facts = {c.tokens_per_iteration(),
                  flops.causal,
                  flops.noncausal,
                  c.machine.peak_flops,
                  fmt::format("machine file {}", c.machine.name),
                  Grid(c.grid).ranks(),
                  c.machine.restart_seconds};
  return report;
}

Report run_experiment(const Case& c, const Session& session, const SideOutputs& outputs) {
  const MachineTime machine_time(c.machine);
  const auto routing = shared_routing(c, session);
  Watchdog watchdog(c.training.watchdog_seconds, fmt::format("rank {} on {}", session.rank(), session.host()));
  RunContext context = make_context(c, session, *routing, c.clock == ClockKind::virtual_time ? &machine_time : nullptr);

  context.watchdog = &watchdog;
  context.decisions = outputs.decisions;
  context.timeline = outputs.timeline;
  if (outputs.timeline != nullptr) outputs.timeline->choose(first_burst(c, *routing));
  const auto& policies = c.provisioning.policies;
  if (std::find(policies.begin(), policies.end(), "replay") != policies.end())
    context.replayed = shared_replay(c, session);

  Report report = report_of(c);
  report.workload_checksum = shared_workload_checksum(c, *routing, session, watchdog);
  report.environment = environment(session, c, *routing);
  report.reasons = verify(c, session, watchdog);
  device::reach(device::Phase::measurement);
  if (report.reasons.empty()) {
    CoactivationFigures measured;
    if (session.rank() == 0)
      measured =
          measure_coactivation(c, *routing, context.node_of_rank, [&watchdog] { watchdog.touch("co-activation"); });
    for (const std::string& policy : c.provisioning.policies) {
      report.runs.push_back(PolicyRunner(context, policy).run());
      report.runs.back().ochiai_mean = measured.ochiai;
      report.runs.back().distinct_nodes_per_token = measured.distinct_nodes;
    }
    compare_checksums(report, context);
    report.margins = project_margins({c, *routing, context.schedule, machine_time}, session);
    if (outputs.decisions != nullptr) collect(*outputs.decisions, session);
  }
  if (session.rank() != 0) {
    for (PolicyRun& run : report.runs) run.ranks.clear();
  }
  share_reasons(report, session);
  return report;
}

}  // namespace spillway
