// What planning costs: the published shapes, all policies on all stages with their loads. Goal: the seven together in less
// than a second.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <vector>

#include "app/case_reader.hpp"
#include "app/plan_report.hpp"

namespace spillway {
namespace {

std::vector<Case> published_cases() {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(SPILLWAY_SOURCE_DIR "/inputs/runs/published"))
    cases.push_back(app::read_case({entry.path(), {}}));
  return cases;
}

void plan_published_shapes(benchmark::State& state) {
  const std::vector<Case> cases = published_cases();
  std::size_t bytes = 0;
  for (auto _ : state)
    for (const Case& c : cases) bytes += app::plan_text(app::make_plan(c, {})).size();
  benchmark::DoNotOptimize(bytes);
  state.counters["shapes"] = static_cast<double>(cases.size());
}
BENCHMARK(plan_published_shapes)->Unit(benchmark::kMillisecond);

/// A case without interleaving: 16 ranks on 4 stages.
void plan_demo(benchmark::State& state) {
  const Case c = app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/demo.toml", {}});
  for (auto _ : state) benchmark::DoNotOptimize(app::plan_json(app::make_plan(c, {})));
}
BENCHMARK(plan_demo)->Unit(benchmark::kMillisecond);

/// The last pass of a search: one peak of the stage that holds most.
void peak_of_a_stage(benchmark::State& state) {
  const Case c = app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/published/423b-512.toml", {}});
  const MemorySetup setup = app::make_plan(c, {}).setup;
  StageForecast forecast(setup, 0, find_policy("selective"));
  std::int64_t rows = 12288;
  for (auto _ : state) benchmark::DoNotOptimize(forecast.peak(rows++));
}
BENCHMARK(peak_of_a_stage)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
