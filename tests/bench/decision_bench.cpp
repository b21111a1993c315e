// What deciding and planning cost: block programs, a rank's decisions, memory forecasts and schedules at the size of a
// large job, and the routing of one sequence. Recorded without goals.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "plan/step_plan.hpp"
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

/// The published grid of 423B-A30B: TP 2, EP 64, and memory for half of what its first stage would keep.
const Case& published_case() {
  static const Case c =
      app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/bench.toml",
                      {"model=423b-a30b", "model.head=false", "parallel.pipeline_parallel=8",
                       "parallel.data_parallel=32", "parallel.tensor_parallel=2", "parallel.expert_parallel=64",
                       "training.sequence_length=4096", "training.micro_batches=56", "routing.preset=burst",
                       "routing.reference_ranks=64", "routing.reference_stages=8", "memory.cap=32 GB"}});
  return c;
}

/// What rank 0's gates say in an iteration of the first stage: [micro-batch][block].
using Tables = std::vector<std::vector<GateTable>>;
Tables tables_of(std::int64_t iteration) {
  const Case& c = published_case();
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

/// Every decision of one rank in an iteration, before and after each gate, its group offering what it does. Returns the
/// decisions taken.
std::int64_t decide_iteration(StepPlan& plan, const Tables& tables, std::int64_t iteration) {
  std::int64_t decisions = 0;
  for (plan.begin_iteration(iteration); !plan.finished(); plan.advance()) {
    const auto [kind, mb, b] = plan.current();
    if (kind != Item::Kind::forward) continue;
    const BlockProgram& program = plan.decide(mb, b);
    ++decisions;
    if (program.gate == program.forward.size()) continue;
    const GateTable& table = tables[static_cast<std::size_t>(mb)][static_cast<std::size_t>(b)];
    const std::vector<Offer> offers(static_cast<std::size_t>(table.members), plan.offer(mb, b));
    plan.decide_after_gate(mb, b, {table, offers, 0});
    ++decisions;
  }
  return decisions;
}

/// An iteration's decisions: published below 10 ms in all, of 18 s. Cold: a new plan's first iteration; new_loads: a plan
/// that has seen other loads; warm: the same loads again.
enum class Memory { cold, new_loads, warm };
void flexible_iteration(benchmark::State& state, const char* name, Memory memory) {
  std::vector<Tables> tables;
  for (std::int64_t i = 0; i < 5; ++i) tables.push_back(tables_of(i));
  const Case& c = published_case();
  const auto fresh = [&](std::unique_ptr<Policy>& policy) {
    policy = make_policy(name);
    return std::make_unique<StepPlan>(step_setup(c, schedule_of(c), 0, c.provisioning.margin), *policy);
  };
  std::unique_ptr<Policy> policy;
  std::unique_ptr<StepPlan> plan = fresh(policy);
  decide_iteration(*plan, tables[0], 0);
  std::int64_t decisions = 0, iteration = 1;
  for (auto _ : state) {
    if (memory == Memory::cold || (memory == Memory::new_loads && iteration == 5)) {
      state.PauseTiming();
      plan.reset();
      plan = fresh(policy);
      if (memory == Memory::new_loads) decide_iteration(*plan, tables[0], 0);
      iteration = 1;
      state.ResumeTiming();
    }
    const auto at = static_cast<std::size_t>(memory == Memory::new_loads ? iteration++ : 0);
    decisions += decide_iteration(*plan, tables[at], 0);
  }
  state.counters["per_decision"] =
      benchmark::Counter(static_cast<double>(decisions), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  const CacheCounts counts = policy->cache();
  state.counters["hit_rate"] =
      static_cast<double>(counts.hits) / static_cast<double>(std::max<std::int64_t>(1, counts.lookups));
}
BENCHMARK_CAPTURE(flexible_iteration, greedy_cold, "flexible:greedy", Memory::cold)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(flexible_iteration, greedy_new_loads, "flexible:greedy", Memory::new_loads)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(flexible_iteration, greedy_warm, "flexible:greedy", Memory::warm)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(flexible_iteration, ratio_cold, "flexible:ratio", Memory::cold)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(flexible_iteration, ratio_new_loads, "flexible:ratio", Memory::new_loads)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(flexible_iteration, ratio_warm, "flexible:ratio", Memory::warm)->Unit(benchmark::kMillisecond);

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
