// Dispatch and combine of a layer's rows among four ranks, as the operators of a run carry them out, against the same
// steps made of raw primitives in the same run: row copies, MPI_Alltoallv, a plain sum of k rows. Each iteration runs
// both, and bare MPI_Alltoallv of the same rows there and back, in turn and in lock-step on all ranks; a time runs from
// the first rank's start to the last rank's end. Experts return their rows unchanged, so that results can be checked.
// All ranks must share a node: their clocks are compared.
#include <benchmark/benchmark.h>
#include <mpi.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "device/row_map.hpp"
#include "run/operator_runner.hpp"
#include "run/policy_run.hpp"
#include "run/session.hpp"

namespace spillway {
namespace {

constexpr int members = 4, repetitions = 200;
constexpr std::int64_t hidden = 512, tokens = 512, chosen = 4, experts = 16;
constexpr int moe_block = 1;  // after synthetic_input

/// Seconds from the first rank's start to the last rank's end. Collective.
template <class Body>
double measure(const Body& body) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = now();
  body();
  double range[2] = {-start, now()};
  MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return range[0] + range[1];
}

/// One layer on four ranks. Skewed: one rank receives twice its share.
Case one_layer(bool skewed) {
  Case c;
  c.clock = ClockKind::wall;
  c.model = {.hidden_size = hidden,
             .moe_intermediate_size = 256,
             .num_experts = experts,
             .num_experts_per_tok = chosen,
             .num_hidden_layers = 1,
             .num_attention_heads = 8,
             .num_key_value_heads = 8,
             .head_dim = 64,
             .head = false};
  c.grid.data_parallel = c.grid.expert_parallel = members;
  c.training.sequence_length = tokens;
  c.training.micro_batches = 1;
  c.routing.preset = skewed ? "hot_rank" : "balanced";
  c.routing.reference_ranks = members;
  c.routing.peak = 2;
  c.routing.hot_share = 1;
  validate(c, members);
  return c;
}

/// The program's way: instructions of the layer's program, each with the allocations and releases it asks for.
class Operators {
 public:
  Operators(const Case& c, const RunContext& context)
      : policy_(make_policy("keep")),
        plan_(step_setup(c, context.schedule, 0, 1.0), *policy_),
        clock_(nullptr),
        timer_(clock_, stream_),
        engine_(c, plan_.blocks(), {}, clock_),
        runner_({c, context.routing, context.node_of_rank}, engine_, plan_.blocks(), timer_) {
    runner_.begin_iteration(0);
    plan_.begin_iteration(0);
    for (const Instruction& i : plan_.decide(0, moe_block - 1).forward) carry_out(moe_block - 1, i);
    plan_.advance();
    const BlockProgram& first = plan_.decide(0, moe_block);
    runner_.announce(plan_.offer(0, moe_block));
    for (std::size_t i = 0; i <= first.gate; ++i) carry_out(moe_block, first.forward[i]);
    const auto& forward = plan_.decide_after_gate(0, moe_block, runner_.gate(0, moe_block)).forward;
    dispatch_ = std::find_if(forward.begin(), forward.end(), [](const Instruction& i) { return i.op == Op::dispatch; });
    end_ = forward.end();
  }

  device::Matrix<float> get(Tensor t) const { return engine_.activations.get({0, moe_block, t}); }
  void dispatch() { carry_out(moe_block, *dispatch_); }
  /// In place of the experts.
  void return_rows_unchanged() {
    allocate(moe_block, Tensor::expert_output);
    std::copy_n(get(Tensor::fc1_input).data, get(Tensor::fc1_input).size(), get(Tensor::expert_output).data);
  }
  void combine() {
    for (auto i = dispatch_; i != end_; ++i)
      if (i->op == Op::combine || i->op == Op::unpermute) carry_out(moe_block, *i);
  }
  /// Releases what the backward pass would.
  void forget() {
    for (const Tensor t : {Tensor::fc1_input, Tensor::row_weight, Tensor::block_output})
      engine_.activations.release({0, moe_block, t});
  }

 private:
  void allocate(int block, Tensor t) {
    const BlockContext& context = plan_.blocks()[block].context;
    engine_.activations.allocate({0, block, t}, extent(t, context, plan_.rows(0, block).whole), category(t, context));
  }
  void carry_out(int block, const Instruction& instruction) {
    for (const Tensor t : instruction.allocate) allocate(block, t);
    runner_.run(0, block, instruction, plan_.rows(0, block).whole);
    for (const Tensor t : instruction.release) engine_.activations.release({0, block, t});
  }

  std::unique_ptr<Policy> policy_;
  StepPlan plan_;
  device::Clock clock_;
  device::Stream stream_;
  LaneTimer timer_;
  Engine engine_;
  OperatorRunner runner_;
  std::vector<Instruction>::const_iterator dispatch_, end_;
};

/// The same steps from raw primitives, on buffers of its own that are allocated once.
class Primitives {
 public:
  Primitives(const RoutingSource& routing, int me, const Operators& operators) : inputs_(operators) {
    std::vector<std::int64_t> table(members * experts);
    std::vector<std::int32_t> rows(experts), choices(tokens * chosen);
    for (int member = 0; member < members; ++member) {
      routing.rows_per_expert({0, 0, member}, rows);
      std::copy(rows.begin(), rows.end(), table.begin() + member * experts);
    }
    routing.choices({0, 0, me}, choices);
    map_ = device::make_row_map({choices.data(), tokens, chosen}, {table.data(), members, experts}, me);
    for (auto* buffer : {&sent_, &returned_}) buffer->resize(tokens * chosen * hidden);
    for (auto* buffer : {&received_, &expert_input_}) buffer->resize(map_.rows() * hidden);
    sent_weight_.resize(tokens * chosen);
    received_weight_.resize(map_.rows());
    row_weight_.resize(map_.rows());
    output_.resize(tokens * hidden);
    int sent_at = 0, received_at = 0;
    for (int member = 0; member < members; ++member) {
      sent_counts_.push_back(static_cast<int>(map_.sent_rows[member]));
      received_counts_.push_back(static_cast<int>(map_.received_rows[member]));
      sent_starts_.push_back(sent_at);
      received_starts_.push_back(received_at);
      sent_at += sent_counts_.back();
      received_at += received_counts_.back();
    }
    MPI_Type_contiguous(hidden, MPI_FLOAT, &row_);
    MPI_Type_commit(&row_);
  }
  ~Primitives() { MPI_Type_free(&row_); }
  Primitives(const Primitives&) = delete;
  Primitives& operator=(const Primitives&) = delete;

  void dispatch() {
    const float *u = inputs_.get(Tensor::mlp_norm_output).data, *state = inputs_.get(Tensor::router_state).data;
    for (std::int64_t i = 0; i < tokens * chosen; ++i) copy_row(u + map_.token_of_sent[i] * hidden, &sent_[i * hidden]);
    for (std::int64_t i = 0; i < tokens * chosen; ++i) sent_weight_[i] = state[map_.weight_of_sent[i]];
    rows_there();
    MPI_Alltoallv(sent_weight_.data(), sent_counts_.data(), sent_starts_.data(), MPI_FLOAT, received_weight_.data(),
                  received_counts_.data(), received_starts_.data(), MPI_FLOAT, MPI_COMM_WORLD);
    for (std::int64_t i = 0; i < map_.rows(); ++i)
      copy_row(&received_[i * hidden], &expert_input_[map_.expert_order[i] * hidden]);
    for (std::int64_t i = 0; i < map_.rows(); ++i) row_weight_[map_.expert_order[i]] = received_weight_[i];
  }
  void combine() {
    for (std::int64_t i = 0; i < map_.rows(); ++i)
      copy_row(&expert_input_[map_.expert_order[i] * hidden], &received_[i * hidden]);
    rows_back();
    const float* residual = inputs_.get(Tensor::mlp_norm_input).data;
    std::memcpy(output_.data(), residual, output_.size() * sizeof(float));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < chosen; ++j) {
        const float* row = &returned_[map_.position[t * chosen + j] * hidden];
        float* sum = &output_[t * hidden];
        for (std::int64_t c = 0; c < hidden; ++c) sum[c] += row[c];
      }
  }
  /// Bare MPI_Alltoallv of the rows, there and back.
  void messages() {
    rows_there();
    rows_back();
  }
  device::Matrix<const float> output() const { return {output_.data(), tokens, hidden}; }

 private:
  static void copy_row(const float* from, float* to) { std::memcpy(to, from, hidden * sizeof(float)); }
  void rows_there() {
    MPI_Alltoallv(sent_.data(), sent_counts_.data(), sent_starts_.data(), row_, received_.data(),
                  received_counts_.data(), received_starts_.data(), row_, MPI_COMM_WORLD);
  }
  void rows_back() {
    MPI_Alltoallv(received_.data(), received_counts_.data(), received_starts_.data(), row_, returned_.data(),
                  sent_counts_.data(), sent_starts_.data(), row_, MPI_COMM_WORLD);
  }

  const Operators& inputs_;
  device::RowMap map_;
  std::vector<float> sent_, received_, expert_input_, returned_, sent_weight_, received_weight_, row_weight_, output_;
  std::vector<int> sent_counts_, received_counts_, sent_starts_, received_starts_;
  MPI_Datatype row_ = MPI_DATATYPE_NULL;
};

/// With experts that change nothing, a token's output is its residual and k times its row. True on all ranks or none.
bool correct(const Operators& operators, device::Matrix<const float> output) {
  const device::Matrix<float> u = operators.get(Tensor::mlp_norm_output), y = operators.get(Tensor::mlp_norm_input);
  int good = 1;
  for (std::int64_t i = 0; i < output.size(); ++i) {
    float expected = y.data[i];
    for (std::int64_t j = 0; j < chosen; ++j) expected += u.data[i];
    good &= output.data[i] == expected;
  }
  MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return good != 0;
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

/// `ratio`: time of the primitives over ours, median over iterations, with its quartiles; `ratio_of_best`: of the tenth
/// percentiles of either time, which a busy machine spoils less. `alltoallv_share`: bare MPI_Alltoallv over ours.
void exchange(benchmark::State& state, const Session& session, bool skewed) {
  const Case c = one_layer(skewed);
  const auto routing = make_routing_source(c.routing, routing_problem(c));
  const RunContext context = make_context(c, session, *routing, nullptr);
  Operators operators(c, context);
  Primitives primitives(*routing, session.rank(), operators);
  std::vector<double> ours, theirs, bare, ratios, shares;
  const auto run_theirs = [&] {
    theirs.push_back(measure([&] { primitives.dispatch(); }));
    theirs.back() += measure([&] { primitives.combine(); });
  };
  const auto run_ours = [&] {
    ours.push_back(measure([&] { operators.dispatch(); }));
    operators.return_rows_unchanged();
    ours.back() += measure([&] { operators.combine(); });
  };
  for (auto _ : state) {
    const bool ours_first = ours.size() % 2 == 0;
    if (ours_first) run_ours();
    run_theirs();
    if (!ours_first) run_ours();
    bare.push_back(measure([&] { primitives.messages(); }));
    ratios.push_back(theirs.back() / ours.back());
    shares.push_back(bare.back() / ours.back());
    state.SetIterationTime(ours.back());
    if (ours.size() == 1 &&
        !(correct(operators, operators.get(Tensor::block_output)) && correct(operators, primitives.output())))
      return state.SkipWithError("the rows that came back are wrong");
    operators.forget();
  }
  state.counters["ratio"] = quantile(ratios, 0.5);
  state.counters["ratio_q1"] = quantile(ratios, 0.25);
  state.counters["ratio_q3"] = quantile(ratios, 0.75);
  state.counters["ratio_of_best"] = quantile(theirs, 0.1) / quantile(ours, 0.1);
  state.counters["alltoallv_share"] = quantile(shares, 0.5);
}

/// What ranks other than the first print.
class Silence final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

/// Runs the registered benchmarks in lock-step; the first rank alone prints and writes results.
void run_on_all_ranks(bool first_rank) {
  Silence silence;
  first_rank ? benchmark::RunSpecifiedBenchmarks() : benchmark::RunSpecifiedBenchmarks(&silence);
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  setenv("OMP_NUM_THREADS", "1", 1);
  const spillway::Session session;
  if (session.world() != spillway::members) {
    if (session.rank() == 0) std::fprintf(stderr, "start this benchmark on %d ranks\n", spillway::members);
    return 2;
  }
  std::vector<char*> arguments(argv, argv + argc);
  if (session.rank() != 0)
    std::erase_if(arguments, [](const char* a) { return std::string_view(a).starts_with("--benchmark_out"); });
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  for (const auto& [name, skewed] : {std::pair("exchange/even", false), std::pair("exchange/skewed", true)})
    benchmark::RegisterBenchmark(name, [&session, skewed = skewed](
                                           benchmark::State& state) { spillway::exchange(state, session, skewed); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(spillway::repetitions);
  spillway::run_on_all_ranks(session.rank() == 0);
  return 0;
}
