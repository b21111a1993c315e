// What deciding and planning cost: block programs, a rank's decisions, memory forecasts and schedules at the size of a
// large job, and the routing of one sequence. Recorded without goals.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "plan/work_order.hpp"
#include "run/engine.hpp"
#include "run/policy_run.hpp"
#include "run/projection.hpp"

namespace spillway {
namespace {

/// 423B-A30B on 8 stages, 56 micro-batches of one sequence of 4,096 tokens.
const Case& large_case() {
  static const Case c =
      app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/bench.toml",
                      {"model=423b-a30b", "parallel.pipeline_parallel=8", "parallel.data_parallel=32",
                       "parallel.expert_parallel=32", "training.sequence_length=4096", "training.micro_batches=56",
                       "routing.preset=burst", "routing.reference_ranks=32", "routing.reference_stages=8"}});
  return c;
}

Schedule schedule_of(const Case& c) {
  return one_forward_one_backward({c.grid.pipeline_parallel, static_cast<int>(c.training.micro_batches)});
}

StepPlan::Setup large_stage(int stage) {
  return step_setup(large_case(), schedule_of(large_case()), stage, large_case().provisioning.margin);
}

/// Moves on to the next block that goes forward, from iteration to iteration.
void skip_to_forward(StepPlan& plan) {
  while (plan.finished() || plan.current().kind != Item::Kind::forward)
    plan.finished() ? plan.begin_iteration(0) : plan.advance();
}

void compile_layer(benchmark::State& state, const char* policy) {
  const auto chosen = make_policy(policy);
  StepPlan plan(large_stage(1), *chosen);
  skip_to_forward(plan);
  plan.decide(0, 0);
  const StageBlock& block = plan.blocks()[0];
  for (auto _ : state) benchmark::DoNotOptimize(compile(block.kind, block.context, plan.mitigations(0, 0)));
}
BENCHMARK_CAPTURE(compile_layer, keep, "keep");
BENCHMARK_CAPTURE(compile_layer, selective, "selective");
BENCHMARK_CAPTURE(compile_layer, full, "full");

/// One decision about a block whose program is known already.
void decide_warm(benchmark::State& state) {
  const auto policy = make_policy("selective");
  StepPlan plan(large_stage(1), *policy);
  for (auto _ : state) {
    skip_to_forward(plan);
    benchmark::DoNotOptimize(&plan.decide(plan.current().micro_batch, plan.current().block));
    plan.advance();
  }
}
BENCHMARK(decide_warm);

/// The first decision of a new plan.
void decide_cold(benchmark::State& state) {
  const auto policy = make_policy("selective");
  for (auto _ : state) {
    StepPlan plan(large_stage(1), *policy);
    skip_to_forward(plan);
    benchmark::DoNotOptimize(&plan.decide(0, 0));
  }
}
BENCHMARK(decide_cold);

/// The books of one iteration of the first stage, which has most micro-batches in flight.
void forecast(benchmark::State& state, const char* name) {
  const auto policy = make_policy(name);
  StepPlan plan(large_stage(0), *policy);
  Bytes peak;
  for (auto _ : state)
    peak =
        forecast_memory(plan, [](int, const StageBlock& b) { return balanced_rows(b.context, 1.15); }).ledger().peak();
  state.counters["peak_mib"] = mebibytes(peak);
}
BENCHMARK_CAPTURE(forecast, keep, "keep")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forecast, full, "full")->Unit(benchmark::kMicrosecond);

/// The published row of 423B-A30B: 8 stages of 2 chunks, TP 2, EP 64, 56 micro-batches, and memory for half of what its
/// first stage would keep. Micro-batches of the "spike" have a hot rank in every iteration.
const Case& published_case(bool spike) {
  const auto read = [](std::vector<std::string> settings) {
    settings.emplace_back("memory.cap=32 GB");
    return app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/published/423b-512.toml", settings});
  };
  static const Case calm = read({}), hot = read({"routing.burst_fraction=1"});
  return spike ? hot : calm;
}

/// What rank 0's gates say in an iteration of the first stage: [micro-batch][block].
using Tables = std::vector<std::vector<GateTable>>;
Tables tables_of(const Case& c, std::int64_t iteration) {
  const auto source = make_routing_source(c.routing, routing_problem(c));
  LoadSource loads(c, *source);
  Tables tables;
  for (int mb = 0; mb < c.training.micro_batches; ++mb) {
    tables.emplace_back();
    for (const StageBlock& b : stage_blocks(stage_setup(c), 0))
      tables.back().push_back(b.kind == BlockKind::moe ? loads.table(iteration, 0, b, mb) : GateTable{});
  }
  return tables;
}

/// Time that only runs between start() and stop().
class Stopwatch {
 public:
  void start() { begun_ = Clock::now(); }
  void stop() { seconds_ += std::chrono::duration<double>(Clock::now() - begun_).count(); }
  double seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begun_;
  double seconds_ = 0;
};

/// Every decision of one rank in an iteration, before and after each gate, its group offering what it does. Timed are the
/// decisions and the books' way from item to item; not the arrival of a gate table, which a run waits for in the network.
struct Decided {
  std::int64_t decisions = 0;
  double seconds = 0;
};
Decided decide_iteration(StepPlan& plan, WorkOrder& order, const Tables& tables, std::int64_t iteration) {
  Decided decided;
  Stopwatch watch;
  GateTable table;
  std::vector<Offer> offers;
  watch.start();
  for (order.begin_iteration(iteration); !order.finished(); order.advance()) {
    const WorkStep step = order.current();
    const int mb = step.item.micro_batch, b = step.item.block;
    decided.decisions += step.first && step.item.kind == Item::Kind::forward;
    if (!step.is_gate) continue;
    watch.stop();
    table = tables[static_cast<std::size_t>(mb)][static_cast<std::size_t>(b)];
    offers.assign(static_cast<std::size_t>(table.members), plan.offer(mb, b));
    watch.start();
    order.gate({table, offers, 0});
    ++decided.decisions;
  }
  watch.stop();
  decided.seconds = watch.seconds();
  return decided;
}

/// All decisions of an iteration: published below 10 ms, of 18 s. Cold: a new plan's first iteration. Warm: an iteration
/// with other loads, after three.
enum class Memory { cold, warm };
void flexible_iteration(benchmark::State& state, const char* name, Memory memory, bool spike, bool fused = false) {
  Case c = published_case(spike);
  if (fused) c.schedule = "dual_batch";
  std::vector<Tables> tables;
  for (std::int64_t i = 0; i < 6; ++i) tables.push_back(tables_of(c, i));
  const Schedule schedule = pipeline_schedule(c);
  std::unique_ptr<Policy> policy;
  std::unique_ptr<StepPlan> plan;
  std::unique_ptr<WorkOrder> order;
  std::int64_t decisions = 0, iteration = 0, hits = 0, lookups = 0;
  double least = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    if (plan == nullptr || memory == Memory::cold || iteration == std::ssize(tables)) {
      plan.reset();
      policy = make_policy(name);
      plan = std::make_unique<StepPlan>(step_setup(c, schedule, 0, c.provisioning.margin), *policy);
      order = std::make_unique<WorkOrder>(*plan);
      for (iteration = 0; memory == Memory::warm && iteration < 3; ++iteration)
        decide_iteration(*plan, *order, tables[static_cast<std::size_t>(iteration)], iteration);
    }
    const CacheCounts before = policy->cache();
    const Decided all = decide_iteration(*plan, *order, tables[static_cast<std::size_t>(iteration)], iteration);
    ++iteration;
    state.SetIterationTime(all.seconds);
    least = std::min(least, all.seconds);
    decisions += all.decisions;
    hits += policy->cache().hits - before.hits;
    lookups += policy->cache().lookups - before.lookups;
  }
  state.counters["per_decision"] =
      benchmark::Counter(static_cast<double>(decisions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["least_ms"] = 1e3 * least;  // of one iteration: what others on the machine disturb least
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(std::max<std::int64_t>(1, lookups));
}
void timed_by_hand(benchmark::internal::Benchmark* b) { b->Unit(benchmark::kMillisecond)->UseManualTime(); }
BENCHMARK_CAPTURE(flexible_iteration, greedy_cold, "flexible:greedy", Memory::cold, false)->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, greedy_warm, "flexible:greedy", Memory::warm, false)->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_cold, "flexible:ratio", Memory::cold, false)->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_warm, "flexible:ratio", Memory::warm, false)->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_cold, "flexible:ratio", Memory::cold, false, true)
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_warm, "flexible:ratio", Memory::warm, false, true)
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_cold_spike, "flexible:ratio", Memory::cold, true)->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_warm_spike, "flexible:ratio", Memory::warm, true)->Apply(timed_by_hand);

/// A schedule of 16 stages and 128 micro-batches, and the proof that it ends.
void schedule_and_proof(benchmark::State& state) {
  for (auto _ : state) {
    const std::string stuck = find_deadlock(one_forward_one_backward({16, 128}));
    if (!stuck.empty()) return state.SkipWithError(stuck.c_str());
  }
}
BENCHMARK(schedule_and_proof)->Unit(benchmark::kMicrosecond);

/// Rows per expert of one sequence in one layer.
void routing_rows(benchmark::State& state) {
  const auto source = make_routing_source(large_case().routing, routing_problem(large_case()));
  std::vector<std::int32_t> rows(large_case().model.num_experts);
  std::int64_t n = 0;
  for (auto _ : state) {
    source->rows_per_expert({n / 64, n % 32, n % 64}, rows);
    ++n;
  }
}
BENCHMARK(routing_rows)->Unit(benchmark::kMicrosecond);

/// The experts of every token of one sequence in one layer.
void routing_choices(benchmark::State& state) {
  const RoutingProblem problem = routing_problem(large_case());
  const auto source = make_routing_source(large_case().routing, problem);
  std::vector<std::int32_t> choices(problem.rows_per_sequence());
  std::int64_t n = 0;
  for (auto _ : state) {
    source->choices({n / 64, n % 32, n % 64}, choices);
    ++n;
  }
  state.counters["tokens"] = benchmark::Counter(static_cast<double>(state.iterations() * problem.sequence_length),
                                                benchmark::Counter::kIsRate);
}
BENCHMARK(routing_choices)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
