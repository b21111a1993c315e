#include "run/policy_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "metrics/atomic_file.hpp"
#include "metrics/lost_seconds.hpp"
#include "plan/cost/time_model.hpp"
#include "run/decision_record.hpp"
#include "run/hindsight.hpp"
#include "run/timeline_file.hpp"

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

/// With one chunk units in turn are not plain 1F1B, for the warm-up stays longer; where expert groups do not span whole
/// tensor-parallel groups, these could choose differently.
bool may_take_units_in_turn(const Case& c) {
  return c.schedule == "dual_batch" && c.fuse == Choice::automatic && chunks_of_stages(c) > 1 &&
         c.grid.expert_parallel % c.grid.tensor_parallel == 0;
}

}  // namespace

RankRecord record_of(const Grid& grid, int rank) {
  const Coordinates at = grid.coordinates(rank);
  RankRecord record;
  record.rank = rank;
  record.pipeline = at.pipeline;
  record.data = at.data;
  record.tensor = at.tensor;
  record.expert = at.expert;
  record.expert_replica = at.expert_replica;
  return record;
}

bool has_network_thread(const Case& c, const Session& session) {
  return c.clock == ClockKind::wall &&
         (c.network_thread == Choice::always || (c.network_thread == Choice::automatic && session.spare_cores()));
}

StageSetup stage_setup(const Case& c) {
  return {c.model,
          c.grid,
          c.training.sequence_length,
          c.training.micro_batch_size,
          layers_of_pieces(c),
          c.overlap_gradients};
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

Seconds MachineTime::copy(Bytes bytes) const { return copy_seconds(machine_, bytes); }

RunContext make_context(const Case& c, const Session& session, const RoutingSource& routing,
                        const device::TimeModel* time) {
  RunContext context{c, session, routing, time, {}, pipeline_schedule(c)};
  for (int rank = 0; rank < session.world(); ++rank)
    context.node_of_rank.push_back(time != nullptr ? node_of(c.machine, rank) : session.node_of_rank()[rank]);
  return context;
}

std::shared_ptr<const DecisionTable> shared_replay(const Case& c, const Session& session) {
  const std::string& file = c.provisioning.options.replay_file;
  const std::string text = session.broadcast(session.rank() == 0 ? read_text(file) : "");
  return std::make_shared<DecisionTable>(read_decisions(text, file, replay_scope(c), session.rank()));
}

StepPlan::Setup step_setup(const Case& c, const Schedule& schedule, int stage, double load) {
  const auto blocks = stage_blocks(stage_setup(c), stage);
  return {blocks,
          schedule[static_cast<std::size_t>(stage)],
          rank_elements(blocks, Grid(c.grid), c.overlap_gradients),
          {c.memory.alignment, c.memory.cap, c.memory.host_cap, c.machine.shared_memory},
          c.machine,
          load,
          may_take_units_in_turn(c)};
}

Bytes least_cap(const Case& c, const StepPlan& plan) {
  ByteLedger fixed(c.memory.alignment);
  add_static_memory(fixed, plan.elements(), c.model.bytes_per_element);
  add_gradient_step(fixed, plan.elements());
  return std::max(plan.least(), fixed.peak());
}

std::optional<std::string> infeasibility(const Case& c, const Schedule& schedule, std::string_view name) {
  const auto policy = make_policy(name, c.provisioning.options);
  if (!policy->obeys_cap()) return std::nullopt;
  for (int stage = 0; stage < Grid(c.grid).pipeline(); ++stage) {
    StepPlan plan(step_setup(c, schedule, stage, c.provisioning.margin), *policy);
    if (policy->adapts()) {
      const Bytes need = least_cap(c, plan);
      if (need <= c.memory.cap) continue;
      return fmt::format(
          "stage {} does not fit whatever is given up: full recompute with slices of one tile ({} rows) needs {} "
          "bytes, "
          "{} more than memory.cap = {} bytes",
          stage, row_tile, need.value, (need - c.memory.cap).value, c.memory.cap.value);
    }
    const Books books = forecast_memory(plan, [&c](int, const StageBlock& b) {
      return balanced_rows(b.context, c.provisioning.margin);
    });
    if (books.ledger().peak() > c.memory.cap)
      return fmt::format("stage {} does not fit at {} x balanced load: {} exceeds memory.cap = {:.3f} MiB", stage,
                         c.provisioning.margin, memory_arithmetic(books.ledger()), mebibytes(c.memory.cap));
    if (const Bytes any_order = plan.memory().forecast(); any_order > c.memory.cap)
      return fmt::format(
          "stage {} does not fit at {} x balanced load: its fused units need up to {} bytes, {} more than memory.cap = "
          "{} "
          "bytes",
          stage, c.provisioning.margin, any_order.value, (any_order - c.memory.cap).value, c.memory.cap.value);
    if (books.host().peak() > c.memory.host_cap)
      return fmt::format("stage {} offloads {:.3f} MiB at {} x balanced load: more than memory.host_cap = {:.3f} MiB",
                         stage, mebibytes(books.host().peak()), c.provisioning.margin, mebibytes(c.memory.host_cap));
  }
  return std::nullopt;
}

PolicyRunner::PolicyRunner(const RunContext& context, std::string policy)
    : context_(context),
      name_(std::move(policy)),
      primary_(make_policy(name_, options_of(name_))),
      fallback_(make_policy(context.run_case.provisioning.fallback, context.run_case.provisioning.options)),
      clock_(context.time_model) {
  mine_ = record_of(Grid(context.run_case.grid), context.session.rank());
  blocks_ = stage_blocks(stage_setup(context.run_case), mine_.pipeline);
}

PolicyOptions PolicyRunner::options_of(const std::string& policy) const {
  const Case& c = context_.run_case;
  PolicyOptions options = c.provisioning.options;
  const MachineTime time(c.machine);
  // The verification's tiny case has no file: it replays what a search finds.
  const bool searches = policy == "hindsight" || (policy == "replay" && context_.rehearsal);
  if (!searches)
    options.decisions = context_.replayed;
  else if (!infeasibility(c, context_.schedule, policy))
    options.decisions =
        std::make_shared<DecisionTable>(share_hindsight({c, context_.routing, context_.schedule, time}));
  return options;
}

/// What was decided in the iteration that has just been run.
void PolicyRunner::export_decisions(std::int64_t iteration) const {
  if (context_.decisions == nullptr || context_.rehearsal) return;
  for (DecisionRecord d : record_decisions(*plan_, iteration)) {
    d.rank = context_.session.rank();
    context_.decisions->push_back(to_json(d, *plan_, name_).dump());
  }
}

/// The cost model's seconds for the first iterations under the policy itself, beside those the run took. Rank 0 projects.
void PolicyRunner::predict_seconds(PolicyRun& run) const {
  const Case& c = context_.run_case;
  const std::int64_t count = std::min(c.provisioning.predicted_iterations, c.training.iterations);
  if (context_.rehearsal || count == 0 || name_ == "replay" || name_ == "hindsight") return;
  const MachineTime time(c.machine);
  const std::vector<Seconds> projected = project_seconds({c, context_.routing, context_.schedule, time}, name_, count);
  const std::vector<bool> counts = completed_iterations(run);
  std::vector<PredictedSeconds> pairs;
  for (std::size_t i = 0; i < run.iterations.size(); ++i) {
    const IterationRecord& record = run.iterations[i];
    if (!counts[i] || record.conservative || record.index >= std::ssize(projected)) continue;
    if (record.seconds.value > 0) {
      pairs.push_back({projected[static_cast<std::size_t>(record.index)], record.seconds});
    }
  }
  if (pairs.empty()) return;
  const auto median = pairs.begin() + std::ssize(pairs) / 2;
  std::ranges::nth_element(pairs, median, {}, [](const PredictedSeconds& p) { return p.predicted / p.spent; });
  for (RankRecord& rank : run.ranks) rank.predicted = *median;
}

void PolicyRunner::build(bool conservative) {
  executor_.reset();
  plan_.reset();
  engine_.reset();
  Policy& policy = conservative ? *fallback_ : *primary_;
  const int stage = Grid(context_.run_case.grid).coordinates(context_.session.rank()).pipeline;
  device::ArenaOptions memory;
  memory.cap = policy.obeys_cap() ? context_.run_case.memory.cap : no_cap;
  memory.alignment = context_.run_case.memory.alignment;
  memory.poison_freed |= context_.rehearsal;
  engine_ = std::make_unique<Engine>(context_.run_case, blocks_, memory, clock_,
                                     has_network_thread(context_.run_case, context_.session));
  StepPlan::Setup setup =
      step_setup(context_.run_case, context_.schedule, stage, context_.run_case.provisioning.margin);
  setup.limits.cap = memory.cap;
  if (device::injected(device::Fault::disagreeing_plans) &&
      context_.session.rank() == context_.session.facts().world - 1) {
    setup.machine.node_bandwidth = setup.machine.network_bandwidth = 1e30;
    setup.machine.node_latency = setup.machine.network_latency = Seconds(0);
  }
  plan_ = std::make_unique<StepPlan>(std::move(setup), policy);
  executor_ = std::make_unique<Executor>(Executor::Setup{context_.run_case, context_.routing, context_.node_of_rank,
                                                         context_.watchdog,
                                                         context_.rehearsal || context_.run_case.check_order},
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
  cache_ = primary_->cache();
  mine_.peak.include(engine_->arena.ledger());
  mine_.predicted_activation_peak =
      std::max(mine_.predicted_activation_peak.value_or(Bytes(0)), executor_->books().ledger().activation_peak());
  if (!context_.run_case.machine.shared_memory)
    mine_.peak_host_bytes = std::max(mine_.peak_host_bytes.value_or(Bytes(0)), engine_->host_arena.ledger().peak());
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
  result.infeasible = infeasibility(c, context_.schedule, name_);
  if (result.infeasible) return result;

  RestartProtocol protocol({c.provisioning.calm_imbalance, static_cast<int>(c.provisioning.calm_iterations)});
  build(false);
  if (!clock_.is_virtual() && !context_.rehearsal) warm_up();
  if (primary_->obeys_cap()) engine_->parameters.save(snapshot_);
  std::int64_t iteration = 0;
  while (iteration < c.training.iterations) {
    TimelineRecorder* recorder =
        context_.timeline != nullptr && context_.timeline->wants(name_, iteration) ? context_.timeline : nullptr;
    executor_->record(recorder);
    IterationOutcome outcome = executor_->run(iteration, iteration + 1);
    IterationRecord& record = outcome.record;
    show_progress(iteration);
    record.start = job_time_;
    job_time_ += record.charged_seconds();
    record.policy = protocol.conservative() ? c.provisioning.fallback : name_;
    record.conservative = protocol.conservative();
    record.restarted = std::exchange(restarted_, false);
    record.restart_seconds_measured = std::exchange(measured_restart_, std::nullopt);
    if (recorder != nullptr) recorder->end(record, clock_skew(clock_));
    if (record.completed()) export_decisions(record.index);
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
      if (const auto unfit = infeasibility(c, context_.schedule, c.provisioning.fallback)) {
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
    Bytes predicted, reserved, host_peak;
    CacheCounts cache;
    char host[64];
  } flat{mine_.peak,
         *mine_.predicted_activation_peak,
         *mine_.reserved_bytes,
         mine_.peak_host_bytes.value_or(Bytes(-1)),
         cache_,
         {}};
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
  CacheCounts cache;
  for (int r = 0; r < world; ++r) {
    RankRecord record = record_of(grid, r);
    record.host = flats[r].host;
    record.peak = flats[r].peak;
    record.predicted_activation_peak = flats[r].predicted;
    record.reserved_bytes = flats[r].reserved;
    if (flats[r].host_peak >= Bytes(0)) record.peak_host_bytes = flats[r].host_peak;
    cache.lookups += flats[r].cache.lookups;
    cache.hits += flats[r].cache.hits;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * n);
    record.iterations.assign(first, first + static_cast<std::ptrdiff_t>(n));
    run.ranks.push_back(std::move(record));
  }
  if (cache.lookups > 0) run.plan_cache_hit_rate = static_cast<double>(cache.hits) / static_cast<double>(cache.lookups);
  predict_seconds(run);
  return run;
}

}  // namespace spillway
