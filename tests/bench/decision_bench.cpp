// What deciding and planning cost: block programs, a rank's decisions, memory forecasts and schedules at the size of a
// large job, and the routing of one sequence. Recorded without goals.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
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
Tables make_tables(const Case& c, std::int64_t iteration) {
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

/// Iterations 0 to 5, drawn once: their loads differ from each other, as those of a run do.
const std::vector<Tables>& tables_of(bool spike) {
  static std::array<std::vector<Tables>, 2> known;
  std::vector<Tables>& tables = known[spike ? 1 : 0];
  for (std::int64_t i = std::ssize(tables); i < 6; ++i) tables.push_back(make_tables(published_case(spike), i));
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
/// decisions, this rank's offers and the books' way from item to item; not the arrival of a gate table, which a run waits
/// for in the network.
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
    const Offer mine = plan.offer(mb, b);
    watch.stop();
    table = tables[static_cast<std::size_t>(mb)][static_cast<std::size_t>(b)];
    offers.assign(static_cast<std::size_t>(table.members), mine);
    watch.start();
    order.gate({table, offers, 0});
    ++decided.decisions;
  }
  watch.stop();
  decided.seconds = watch.seconds();
  return decided;
}

/// All decisions of an iteration: published below 10 ms, of 18 s. Cold: the first iteration of a new plan, nothing is
/// remembered. Warm: one of the iterations 3, 4 and 5 of a plan after 0, 1 and 2: what these decided and ordered is
/// remembered, but no iteration's loads come twice.
enum class Memory { cold, warm };
struct Decisions {
  const char* policy;
  Memory memory;
  bool spike = false, fused = false;
};

/// A rank that has nothing behind it, and what it has decided since.
class DecidingRank {
 public:
  DecidingRank(const Case& c, const Schedule& schedule, const char* policy)
      : policy_(make_policy(policy)),
        plan_(step_setup(c, schedule, 0, c.provisioning.margin), *policy_),
        order_(plan_) {}
  Decided iterate(const std::vector<Tables>& tables) {
    const std::int64_t i = iteration_++;
    return decide_iteration(plan_, order_, tables[static_cast<std::size_t>(i)], i);
  }
  std::int64_t iteration() const { return iteration_; }
  CacheCounts cache() const { return policy_->cache(); }

 private:
  std::unique_ptr<Policy> policy_;
  StepPlan plan_;
  WorkOrder order_;
  std::int64_t iteration_ = 0;
};

void flexible_iteration(benchmark::State& state, const Decisions& d) {
  Case c = published_case(d.spike);
  if (d.fused) c.schedule = "dual_batch";
  const std::vector<Tables>& tables = tables_of(d.spike);
  const Schedule schedule = pipeline_schedule(c);
  std::optional<DecidingRank> rank;
  std::vector<double> seconds;
  std::int64_t decisions = 0, hits = 0, lookups = 0;
  for (auto _ : state) {
    if (!rank || d.memory == Memory::cold || rank->iteration() == std::ssize(tables)) {
      rank.emplace(c, schedule, d.policy);
      while (d.memory == Memory::warm && rank->iteration() < 3) rank->iterate(tables);
    }
    const CacheCounts before = rank->cache();
    const Decided all = rank->iterate(tables);
    state.SetIterationTime(all.seconds);
    seconds.push_back(all.seconds);
    decisions += all.decisions;
    hits += rank->cache().hits - before.hits;
    lookups += rank->cache().lookups - before.lookups;
  }
  std::sort(seconds.begin(), seconds.end());
  state.counters["per_decision"] =
      benchmark::Counter(static_cast<double>(decisions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  // Of one iteration: what others on the machine disturb least.
  state.counters["least_ms"] = 1e3 * seconds.front();
  state.counters["median_ms"] = 1e3 * seconds[seconds.size() / 2];
  state.counters["hit_rate"] = static_cast<double>(hits) / static_cast<double>(std::max<std::int64_t>(1, lookups));
}
void timed_by_hand(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMillisecond)->UseManualTime()->Iterations(99);
}
BENCHMARK_CAPTURE(flexible_iteration, greedy_cold, Decisions{"flexible:greedy", Memory::cold})->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, greedy_warm, Decisions{"flexible:greedy", Memory::warm})->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_cold, Decisions{"flexible:ratio", Memory::cold})->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_warm, Decisions{"flexible:ratio", Memory::warm})->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_cold_spike, Decisions{"flexible:ratio", Memory::cold, true})
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_warm_spike, Decisions{"flexible:ratio", Memory::warm, true})
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_cold, Decisions{"flexible:ratio", Memory::cold, false, true})
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_warm, Decisions{"flexible:ratio", Memory::warm, false, true})
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_cold_spike, Decisions{"flexible:ratio", Memory::cold, true, true})
    ->Apply(timed_by_hand);
BENCHMARK_CAPTURE(flexible_iteration, ratio_fused_warm_spike, Decisions{"flexible:ratio", Memory::warm, true, true})
    ->Apply(timed_by_hand);

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
