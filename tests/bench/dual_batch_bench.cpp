// What ordering a fused dual batch costs: the exact search, the published scheme with barriers, joining operators, and
// looking a known window up.
#include <benchmark/benchmark.h>

#include "../unit/plan/fused_windows.hpp"
#include "plan/schedule/barrier_slices.hpp"
#include "plan/schedule/interleaving_cache.hpp"

namespace spillway {
namespace {

constexpr std::size_t window_count = 64;

/// compacted_window, or moe_window of that many blocks, compacted.
std::vector<DualBatch> windows(int blocks, double interference) {
  std::vector<DualBatch> list;
  for (std::size_t n = 0; n < window_count; ++n)
    list.push_back(blocks == 0 ? compacted_window(n, interference)
                               : compact(moe_window(n, blocks, interference)).batch);
  return list;
}

/// Arguments: blocks (0: 6, 6, 2 and 2 segments), interference in percent above 1.
void search(benchmark::State& state, Copies copies) {
  const auto list = windows(static_cast<int>(state.range(0)), 1 + 0.01 * static_cast<double>(state.range(1)));
  Interleaver interleaver;
  std::size_t n = 0, orders = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(interleaver(list[n++ % window_count], copies));
    orders += interleaver.partial_orders();
  }
  state.counters["partial_orders"] =
      benchmark::Counter(static_cast<double>(orders), benchmark::Counter::kAvgIterations);
}
BENCHMARK_CAPTURE(search, copies_early, Copies::early)
    ->ArgsProduct({{0, 1, 2, 4}, {0, 5, 20}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(search, copies_anywhere, Copies::anywhere)->Args({0, 5})->Unit(benchmark::kMicrosecond);

void barriers(benchmark::State& state) {
  const auto list = windows(0, 1.05);
  std::size_t n = 0;
  for (auto _ : state) benchmark::DoNotOptimize(interleave_with_barriers(list[n++ % window_count]));
}
BENCHMARK(barriers)->Unit(benchmark::kMicrosecond);

void join_operators(benchmark::State& state) {
  const DualBatch w = moe_window(1, static_cast<int>(state.range(0)), 1.05);
  for (auto _ : state) benchmark::DoNotOptimize(compact(w));
}
BENCHMARK(join_operators)->Arg(1)->Arg(2)->Unit(benchmark::kMicrosecond);

void cache_hit(benchmark::State& state) {
  InterleavingCache cache;
  std::vector<DualBatch> list;
  for (std::size_t n = 0; n < window_count; ++n) list.push_back(moe_window(n, static_cast<int>(state.range(0)), 1.05));
  for (const DualBatch& w : list) cache(w);
  std::size_t n = 0;
  for (auto _ : state) benchmark::DoNotOptimize(&cache(list[n++ % window_count]));
}
BENCHMARK(cache_hit)->Arg(1)->Arg(2)->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace spillway

BENCHMARK_MAIN();
