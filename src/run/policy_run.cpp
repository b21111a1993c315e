#include "run/policy_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "plan/cost/time_model.hpp"

namespace spillway {
namespace {

constexpr Bytes no_cap{std::int64_t{1} << 60};

std::string memory_arithmetic(const ByteLedger& peak) {
  return fmt::format(
      "peak {:.3f} MiB of parameters {:.3f} + gradients {:.3f} + optimizer {:.3f} + activations, messages and "
      "workspace",
      mebibytes(peak.peak()), mebibytes(peak.peak(Category::parameters)), mebibytes(peak.peak(Category::gradients)),
      mebibytes(peak.peak(Category::optimizer)));
}

}  // namespace

StageSetup stage_setup(const Case& c) {
  return {c.model, c.grid, c.training.sequence_length, c.training.micro_batch_size, layers_of_stages(c)};
}

Seconds MachineTime::compute(device::Work work) const { return compute_seconds(machine_, work.flops, work.bytes); }

Seconds MachineTime::all_to_all(std::span<const Bytes> received, std::span<const int> ranks) const {
  std::vector<int> nodes;
  for (const int rank : ranks) nodes.push_back(node_of(machine_, rank));
  return all_to_all_seconds(machine_, received, nodes);
}

device::TimeModel::Message MachineTime::message(Bytes bytes, int from, int to) const {
  const MessageSeconds m = message_seconds(machine_, bytes, node_of(machine_, from) == node_of(machine_, to));
  return {m.occupied, m.latency};
}

RunContext make_context(const Case& c, const Session& session, const RoutingSource& routing,
                        const device::TimeModel* time) {
  RunContext context{
      c,    session, routing,
      time, {},      one_forward_one_backward({c.grid.pipeline_parallel, static_cast<int>(c.training.micro_batches)})};
  const std::string stuck = find_deadlock(context.schedule);
  ensure(stuck.empty(), "the pipeline schedule would deadlock: {}", stuck);
  for (int rank = 0; rank < session.world(); ++rank)
    context.node_of_rank.push_back(time != nullptr ? node_of(c.machine, rank) : session.node_of_rank()[rank]);
  return context;
}

std::optional<std::string> infeasibility(const Case& c, const Schedule& schedule, const Policy& policy) {
  if (!policy.obeys_cap()) return std::nullopt;
  const Grid grid(c.grid);
  for (int stage = 0; stage < grid.pipeline(); ++stage) {
    const std::vector<StageBlock> blocks = stage_blocks(stage_setup(c), stage);
    StepPlan plan(blocks, policy);
    const ByteLedger peak =
        forecast_memory(plan, schedule[stage], rank_elements(blocks, grid), c.memory.alignment,
                        [&c](int, const StageBlock& b) { return balanced_rows(b.context, c.provisioning.margin); });
    if (peak.peak() > c.memory.cap)
      return fmt::format("stage {} does not fit at {} x balanced load: {} exceeds memory.cap = {:.3f} MiB", stage,
                         c.provisioning.margin, memory_arithmetic(peak), mebibytes(c.memory.cap));
  }
  return std::nullopt;
}

PolicyRunner::PolicyRunner(const RunContext& context, std::string policy)
    : context_(context),
      name_(std::move(policy)),
      primary_(make_policy(name_)),
      fallback_(make_policy(context.run_case.provisioning.fallback)),
      clock_(context.time_model) {
  const Coordinates here = Grid(context.run_case.grid).coordinates(context.session.rank());
  blocks_ = stage_blocks(stage_setup(context.run_case), here.pipeline);
  mine_.rank = context.session.rank();
  mine_.pipeline = here.pipeline;
  mine_.data = here.data;
  mine_.tensor = here.tensor;
  mine_.expert = here.expert;
  mine_.expert_replica = here.expert_replica;
}

void PolicyRunner::build(bool conservative) {
  executor_.reset();
  plan_.reset();
  engine_.reset();
  const Policy& policy = conservative ? *fallback_ : *primary_;
  device::ArenaOptions memory;
  memory.cap = policy.obeys_cap() ? context_.run_case.memory.cap : no_cap;
  memory.alignment = context_.run_case.memory.alignment;
  memory.poison_freed |= context_.rehearsal;
  engine_ = std::make_unique<Engine>(context_.run_case, blocks_, memory);
  plan_ = std::make_unique<StepPlan>(blocks_, policy);
  const auto& order = context_.schedule[engine_->communicators.here.pipeline];
  executor_ = std::make_unique<Executor>(Executor::Setup{context_.run_case, context_.routing, context_.node_of_rank,
                                                         order, context_.watchdog},
                                         *engine_, *plan_, clock_);
}

/// Measured seconds shall not hold first touches of memory: one iteration is run and forgotten before the wall clock
/// counts.
void PolicyRunner::warm_up() {
  const bool completed = executor_->run(0, 1).record.completed();
  if (completed)
    engine_->parameters.initialize(context_.run_case.training.seed, engine_->communicators.here);
  else
    build(false);
}

/// Notes the peaks of this life of the rank before it ends.
void PolicyRunner::retire() {
  mine_.peak.include(engine_->arena.ledger());
  mine_.predicted_activation_peak =
      std::max(mine_.predicted_activation_peak.value_or(Bytes(0)), executor_->books().activation_peak());
  mine_.reserved_bytes = std::max(mine_.reserved_bytes.value_or(Bytes(0)), engine_->arena.reserved());
}

/// A cold start: everything but MPI and Kokkos goes and comes back, the weights from the snapshot.
void PolicyRunner::restart(bool conservative) {
  const auto begun = std::chrono::steady_clock::now();
  retire();
  device::reach(device::Phase::restart);
  build(conservative);
  if (!device::injected(device::Fault::lost_snapshot)) engine_->parameters.restore(snapshot_);
  MPI_Barrier(MPI_COMM_WORLD);
  restarted_ = true;
  if (!clock_.is_virtual())
    measured_restart_ = Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  job_time_ += context_.run_case.machine.restart_seconds;
}

PolicyRun PolicyRunner::run() {
  const Case& c = context_.run_case;
  PolicyRun result;
  result.policy = name_;
  result.infeasible = infeasibility(c, context_.schedule, *primary_);
  if (result.infeasible) return result;

  RestartProtocol protocol({c.provisioning.calm_imbalance, static_cast<int>(c.provisioning.calm_iterations)});
  build(false);
  if (!clock_.is_virtual() && !context_.rehearsal) warm_up();
  if (primary_->obeys_cap()) engine_->parameters.save(snapshot_);
  std::int64_t iteration = 0;
  while (iteration < c.training.iterations) {
    IterationOutcome outcome = executor_->run(iteration, iteration + 1);
    IterationRecord& record = outcome.record;
    show_progress(iteration);
    record.start = job_time_;
    job_time_ += record.charged_seconds();
    record.policy = protocol.conservative() ? c.provisioning.fallback : name_;
    record.conservative = protocol.conservative();
    record.restarted = std::exchange(restarted_, false);
    record.restart_seconds_measured = std::exchange(measured_restart_, std::nullopt);
    result.iterations.push_back(record);
    mine_.iterations.push_back(outcome.mine);
    result.reasons.insert(result.reasons.end(), outcome.faults.begin(), outcome.faults.end());

    if (!outcome.faults.empty()) break;
    if (!record.completed()) {
      if (!protocol.out_of_memory(iteration)) {
        result.reasons.push_back(
            fmt::format("iteration {} ran out of memory under the fallback policy {} too (rank {}, {})", iteration,
                        c.provisioning.fallback, record.oom->rank, record.oom->operator_name));
        break;
      }
      if (const auto unfit = infeasibility(c, context_.schedule, *fallback_)) {
        result.reasons.push_back(
            fmt::format("iteration {} ran out of memory and there is nothing to fall back to: {} {}", iteration,
                        c.provisioning.fallback, *unfit));
        break;
      }
      restart(true);
      iteration = snapshot_.completed_iterations;
      continue;
    }
    ++iteration;
    const bool rehearse = context_.rehearsal && iteration == 1 && primary_->obeys_cap();
    const bool return_now = protocol.completed(record.index, record.imbalance) && iteration < c.training.iterations;
    if (primary_->obeys_cap() && (return_now || iteration % c.training.checkpoint_every == 0)) {
      engine_->parameters.save(snapshot_);
      snapshot_.completed_iterations = iteration;
    }
    if (rehearse) restart(false);
    if (return_now) restart(false);
  }
  retire();
  return gather(std::move(result));
}

/// On terminals only, and not during the verification.
void PolicyRunner::show_progress(std::int64_t iteration) const {
  if (context_.rehearsal || context_.session.rank() != 0 || isatty(STDERR_FILENO) == 0) return;
  const std::int64_t last = context_.run_case.training.iterations - 1;
  fmt::print(stderr, "\r{:<12} iteration {} of {}{}", name_, iteration + 1, last + 1, iteration == last ? "\n" : "");
}

/// Rank 0 receives every rank's record.
PolicyRun PolicyRunner::gather(PolicyRun run) const {
  struct Flat {
    PeakBytes peak;
    Bytes predicted, reserved;
    char host[64];
  } flat{mine_.peak, *mine_.predicted_activation_peak, *mine_.reserved_bytes, {}};
  context_.session.host().copy(flat.host, sizeof flat.host - 1);
  const int world = context_.session.world(), rank = context_.session.rank();
  const std::size_t n = mine_.iterations.size();
  std::vector<Flat> flats(rank == 0 ? world : 0);
  MPI_Gather(&flat, sizeof flat, MPI_BYTE, flats.data(), sizeof flat, MPI_BYTE, 0, MPI_COMM_WORLD);
  std::vector<RankIteration> all(rank == 0 ? static_cast<std::size_t>(world) * n : 0);
  const int row = static_cast<int>(n * sizeof(RankIteration));
  MPI_Gather(mine_.iterations.data(), row, MPI_BYTE, all.data(), row, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) return run;
  const Grid grid(context_.run_case.grid);
  for (int r = 0; r < world; ++r) {
    const Coordinates at = grid.coordinates(r);
    RankRecord record;
    record.rank = r;
    record.pipeline = at.pipeline;
    record.data = at.data;
    record.tensor = at.tensor;
    record.expert = at.expert;
    record.expert_replica = at.expert_replica;
    record.host = flats[r].host;
    record.peak = flats[r].peak;
    record.predicted_activation_peak = flats[r].predicted;
    record.reserved_bytes = flats[r].reserved;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * n);
    record.iterations.assign(first, first + static_cast<std::ptrdiff_t>(n));
    run.ranks.push_back(std::move(record));
  }
  return run;
}

}  // namespace spillway
