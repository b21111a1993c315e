// A whole training iteration of one rank on the wall clock, optimizer included, against what the same core reaches in
// big square matrix products in the same run. The case is inputs/runs/bench.toml under the policy `oracle`.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "base/random.hpp"
#include "device/gemm.hpp"
#include "run/executor.hpp"
#include "run/gradient_step.hpp"
#include "run/policy_run.hpp"

namespace spillway {
namespace {

constexpr int iterations = 7, products = 4;
constexpr std::int64_t square = 2048;

/// Elapsed and CPU seconds. CPU time of this one working thread leaves out what else runs on the machine, and waiting.
struct Duration {
  double wall = 0, cpu = 0;
};

template <class Body>
Duration measure(const Body& body) {
  const auto cpu_now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double cpu = cpu_now();
  const auto start = std::chrono::steady_clock::now();
  body();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {wall, cpu_now() - cpu};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// The best rate of the matrix library so far, in FLOP/s of either time.
class Peak {
 public:
  Peak() : a_(square * square), b_(a_.size()), c_(a_.size()) {
    const CounterRandom random(1, 2);
    for (std::size_t i = 0; i < a_.size(); ++i) a_[i] = b_[i] = static_cast<float>(random.normal(i));
  }
  /// Returns the best rate on the wall clock of these products alone.
  double measure_again() {
    double now = 0;
    device::Stream stream;
    const auto view = [](std::vector<float>& x) { return device::Matrix<float>{x.data(), square, square}; };
    for (int i = 0; i < products; ++i) {
      const Duration d = measure(
          [&] { device::gemm(stream, view(a_), device::Transpose::no, view(b_), device::Transpose::no, 0, view(c_)); });
      const auto flops = static_cast<double>(stream.take().flops.value);
      now = std::max(now, flops / d.wall);
      cpu = std::max(cpu, flops / d.cpu);
    }
    wall = std::max(wall, now);
    return now;
  }
  double wall = 0, cpu = 0;

 private:
  std::vector<float> a_, b_, c_;
};

/// One rank with everything a policy run builds.
class Rank {
 public:
  explicit Rank(const Session& session)
      : run_case(app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/bench.toml", {}})),
        routing(make_routing_source(run_case.routing, routing_problem(run_case))),
        context(make_context(run_case, session, *routing, nullptr)),
        policy(make_policy("oracle")),
        plan(step_setup(run_case, context.schedule, 0, 1.0), *policy),
        clock(nullptr),
        engine(run_case, plan.blocks(), {}, clock),
        executor({run_case, *routing, context.node_of_rank}, engine, plan, clock) {}

  double model_flops() const {
    return model_flops_per_token(run_case.model, run_case.training.sequence_length).causal *
           static_cast<double>(run_case.tokens_per_iteration());
  }

  Case run_case;
  std::unique_ptr<RoutingSource> routing;
  RunContext context;
  std::unique_ptr<Policy> policy;
  StepPlan plan;
  device::Clock clock;
  Engine engine;
  Executor executor;
};

/// `mfu`: model FLOPs (causal attention, no router, no recompute) over the median time and the peak rate, both on the
/// wall clock; `mfu_paired`: with the rate just before each iteration, for machines whose speed drifts; `mfu_best`,
/// `mfu_worst`: of the shortest and longest iteration; `mfu_cpu`: median in CPU time.
void iteration(benchmark::State& state, const Session& session) {
  Rank rank(session);
  Peak peak;
  const double flops = rank.model_flops();
  std::vector<double> wall, cpu, paired;
  std::int64_t index = 0;
  rank.executor.run(index++, 1);  // touches the memory that all later iterations use
  for (auto _ : state) {
    const double before = peak.measure_again();
    IterationOutcome outcome;
    const Duration d = measure([&] { outcome = rank.executor.run(index, index + 1); });
    ++index;
    if (!outcome.faults.empty() || !outcome.record.completed())
      return state.SkipWithError("the iteration is not valid");
    state.SetIterationTime(d.wall);
    wall.push_back(d.wall);
    cpu.push_back(d.cpu);
    paired.push_back(flops / d.wall / before);
  }
  state.counters["mfu"] = flops / median(wall) / peak.wall;
  state.counters["mfu_best"] = flops / *std::min_element(wall.begin(), wall.end()) / peak.wall;
  state.counters["mfu_worst"] = flops / *std::max_element(wall.begin(), wall.end()) / peak.wall;
  state.counters["mfu_paired"] = median(paired);
  state.counters["mfu_cpu"] = flops / median(cpu) / peak.cpu;
  state.counters["peak_gflops"] = peak.wall * 1e-9;
  state.counters["model_gflop"] = flops * 1e-9;
}

/// Walks an iteration as the executor does and times every operator; returns seconds by "operator" and "operator'",
/// forward and backward.
std::map<std::string, double> operator_seconds(Rank& rank, std::int64_t index) {
  device::Stream stream;
  LaneTimer timer(rank.clock, stream);
  OperatorRunner operators({rank.run_case, *rank.routing, rank.context.node_of_rank}, rank.engine, rank.plan.blocks(),
                           timer);
  operators.begin_iteration(index);
  std::map<std::string, double> seconds;
  const auto run = [&](int mb, int block, const Instruction& instruction) {
    const BlockContext& context = rank.plan.blocks()[block].context;
    const std::string label =
        fmt::format("{}{}", name(instruction.op), instruction.pass == PassKind::backward ? "'" : "");
    seconds[label] +=
        measure([&] {
          for (const Tensor t : instruction.allocate)
            rank.engine.activations.allocate({mb, block, t}, extent(t, context, rank.plan.rows(mb, block).whole),
                                             category(t, context));
          operators.run(mb, block, instruction, rank.plan.rows(mb, block).whole);
          for (const Tensor t : instruction.release) rank.engine.activations.release({mb, block, t});
        }).cpu;
  };
  seconds["clear_gradients"] = measure([&] { clear_gradients(rank.engine, timer); }).cpu;
  for (rank.plan.begin_iteration(index); !rank.plan.finished(); rank.plan.advance()) {
    const int mb = rank.plan.current().micro_batch, b = rank.plan.current().block;
    if (rank.plan.current().kind == Item::Kind::backward)
      for (const Instruction& i : rank.plan.program(mb, b).backward) run(mb, b, i);
    if (rank.plan.current().kind != Item::Kind::forward) continue;
    const BlockProgram* program = &rank.plan.decide(mb, b);
    operators.announce(rank.plan.offer(mb, b));
    for (std::size_t i = 0; i < program->forward.size(); ++i) {
      run(mb, b, program->forward[i]);
      if (i == program->gate) program = &rank.plan.decide_after_gate(mb, b, operators.gate(mb, b));
    }
  }
  seconds["optimizer"] = measure([&] { apply_optimizer(rank.engine, timer, rank.run_case.training, index + 1); }).cpu;
  seconds["gradient_checksum"] = measure([&] { benchmark::DoNotOptimize(gradient_checksum(rank.engine)); }).cpu;
  return seconds;
}

/// Milliseconds of CPU time per operator, medians over iterations.
void operators(benchmark::State& state, const Session& session) {
  Rank rank(session);
  rank.executor.run(0, 1);
  std::map<std::string, std::vector<double>> samples;
  std::int64_t index = 1;
  for (auto _ : state) {
    double total = 0;
    for (const auto& [label, seconds] : operator_seconds(rank, index++)) {
      samples[label].push_back(seconds);
      total += seconds;
    }
    state.SetIterationTime(total);
  }
  for (const auto& [label, seconds] : samples) state.counters[label + "_ms"] = 1e3 * median(seconds);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  setenv("OMP_NUM_THREADS", "1", 1);
  omp_set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const spillway::Session session;
  for (const auto& [name, body] :
       {std::pair("iteration", &spillway::iteration), std::pair("operators", &spillway::operators)})
    benchmark::RegisterBenchmark(name, [&session, body = body](benchmark::State& state) { body(state, session); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(spillway::iterations);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
