// What deciding and planning cost: block programs, a rank's decisions, memory forecasts and schedules at the size of a
// large job, and the routing of one sequence. Recorded without goals.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "plan/step_plan.hpp"
#include "run/engine.hpp"

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

void compile_layer(benchmark::State& state, const char* policy) {
  const auto blocks = stage_blocks(stage_setup(large_case()), 1);
  const TensorSet keep = make_policy(policy)->decide({blocks[0].kind, blocks[0].context, 0}).keep;
  for (auto _ : state) benchmark::DoNotOptimize(compile(blocks[0].kind, blocks[0].context, keep));
}
BENCHMARK_CAPTURE(compile_layer, keep, "keep");
BENCHMARK_CAPTURE(compile_layer, selective, "selective");
BENCHMARK_CAPTURE(compile_layer, full, "full");

/// One decision about a block whose program is known already.
void decide_warm(benchmark::State& state) {
  const auto policy = make_policy("selective");
  StepPlan plan(stage_blocks(stage_setup(large_case()), 1), *policy);
  const int blocks = static_cast<int>(plan.blocks().size());
  int n = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(&plan.decide(n / blocks % 56, n % blocks));
    ++n;
  }
}
BENCHMARK(decide_warm);

/// The first decision of a new plan.
void decide_cold(benchmark::State& state) {
  const auto policy = make_policy("selective");
  const auto blocks = stage_blocks(stage_setup(large_case()), 1);
  for (auto _ : state) {
    StepPlan plan(blocks, *policy);
    benchmark::DoNotOptimize(&plan.decide(0, 0));
  }
}
BENCHMARK(decide_cold);

/// The books of one iteration of the first stage, which has most micro-batches in flight.
void forecast(benchmark::State& state, const char* name) {
  const Case& c = large_case();
  const auto policy = make_policy(name);
  const auto blocks = stage_blocks(stage_setup(c), 0);
  const auto schedule =
      one_forward_one_backward({c.grid.pipeline_parallel, static_cast<int>(c.training.micro_batches)});
  const RankElements elements = rank_elements(blocks, Grid(c.grid));
  StepPlan plan(blocks, *policy);
  Bytes peak;
  for (auto _ : state)
    peak = forecast_memory(plan, schedule[0], elements, c.memory.alignment, [](int, const StageBlock& b) {
             return balanced_rows(b.context, 1.15);
           }).peak();
  state.counters["peak_mib"] = mebibytes(peak);
}
BENCHMARK_CAPTURE(forecast, keep, "keep")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(forecast, full, "full")->Unit(benchmark::kMicrosecond);

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
