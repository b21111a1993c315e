#pragma once
// One policy over the whole workload of a case: iterations, out-of-memory events, restarts.
#include <memory>
#include <optional>

#include "metrics/step_record.hpp"
#include "plan/restart_protocol.hpp"
#include "run/executor.hpp"
#include "run/session.hpp"
#include "run/watchdog.hpp"

namespace spillway {

/// What all policies of a case share.
struct RunContext {
  const Case& run_case;
  const Session& session;
  const RoutingSource& routing;
  const device::TimeModel* time_model;  ///< null on the wall clock
  std::vector<int> node_of_rank;        ///< modelled nodes on the virtual clock, real ones on the wall clock
  Schedule schedule;
  Watchdog* watchdog = nullptr;
  std::vector<std::string>* decisions = nullptr;  ///< receives this rank's decisions as JSON lines; null: not asked for
  TimelineRecorder* timeline = nullptr;           ///< records what it wants; null: not asked for
  std::shared_ptr<const DecisionTable> replayed = {};  ///< this rank's part of replay.file; null: nothing is replayed
  /// Of the verification: freed memory is poisoned, and a policy with a cap restarts after its first iteration.
  bool rehearsal = false;
};

/// The machine file behind the device's clock.
class MachineTime final : public device::TimeModel {
 public:
  explicit MachineTime(const MachineProfile& machine) : machine_(machine) {}
  Seconds compute(device::Work work) const override;
  Seconds all_to_all(std::span<const Bytes> received, std::span<const int> ranks) const override;
  Message message(Bytes bytes, int from, int to) const override;
  Seconds copy(Bytes bytes) const override;
  double interference() const override { return machine_.interference; }

 private:
  const MachineProfile& machine_;
};

/// Schedule and node map of a case. Throws InternalError for a schedule that would deadlock.
RunContext make_context(const Case& c, const Session& session, const RoutingSource& routing,
                        const device::TimeModel* time);

/// The record of a rank of the grid before anything has run.
RankRecord record_of(const Grid& grid, int rank);

/// Does a thread of this rank drive its messages on?
bool has_network_thread(const Case& c, const Session& session);

/// This rank's decisions of replay.file. Collective; throws InputError on all ranks.
std::shared_ptr<const DecisionTable> shared_replay(const Case& c, const Session& session);

/// What a stage's plan is made from; static policies prepare for `load` x balance.
StepPlan::Setup step_setup(const Case& c, const Schedule& schedule, int stage, double load);

/// Least memory.cap under which a policy that adapts can run the stage at any load.
Bytes least_cap(const Case& c, const StepPlan& plan);

/// Does the policy fit on every stage: a static one at balanced load times the case's margin, one that adapts with its
/// least treatment at the worst load? Empty, or why not, with the arithmetic.
std::optional<std::string> infeasibility(const Case& c, const Schedule& schedule, std::string_view policy);

/// Runs iterations 0 .. n-1 of one policy. Collective over the world. The result's rank records are complete on rank 0.
class PolicyRunner {
 public:
  PolicyRunner(const RunContext& context, std::string policy);
  PolicyRun run();

  /// Weights and gradients as the last iteration left them.
  Engine& engine() { return *engine_; }
  const std::vector<StageBlock>& blocks() const { return blocks_; }

 private:
  void build(bool conservative);
  void warm_up();
  void restart(bool conservative);
  void retire();
  /// Options with what replay and hindsight carry out.
  PolicyOptions options_of(const std::string& policy) const;
  void export_decisions(std::int64_t iteration) const;
  void predict_seconds(PolicyRun& run) const;
  void show_progress(std::int64_t iteration) const;
  PolicyRun gather(PolicyRun run) const;

  const RunContext& context_;
  std::string name_;
  std::unique_ptr<Policy> primary_, fallback_;
  std::vector<StageBlock> blocks_;
  device::Clock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<StepPlan> plan_;
  std::unique_ptr<Executor> executor_;
  Snapshot snapshot_;
  CacheCounts cache_;
  RankRecord mine_;
  Seconds job_time_;  ///< all iterations as charged, and restarts
  std::optional<Seconds> measured_restart_;
  bool restarted_ = false;
};

}  // namespace spillway
