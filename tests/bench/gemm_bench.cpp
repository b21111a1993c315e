// What tiles, activation and blocked attention cost against the bare matrix library, in one run on one core:
// OMP_NUM_THREADS=1 (set here for OpenMP; a BLAS with threads of its own reads the variable).
// Times are CPU times, so that what else runs on the machine counts little. `ratio` is the median over iterations of the
// library's time over ours for the same products; they alternate.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <vector>

#include "base/random.hpp"
#include "device/gemm.hpp"
#include "device/host/strided_gemm.hpp"
#include "device/ops/attention.hpp"
#include "device/ops/swiglu.hpp"

namespace spillway::device {
namespace {

constexpr std::int64_t hidden = 512, expert_hidden = 256, experts = 16, tokens = 512, chosen = 4;
constexpr Transpose no = Transpose::no, yes = Transpose::yes;

/// A matrix of normal numbers that owns its values.
struct Tensor : std::vector<float> {
  Tensor(std::int64_t r, std::int64_t c) : std::vector<float>(static_cast<std::size_t>(r * c)), rows(r), cols(c) {
    const CounterRandom random(static_cast<std::uint64_t>(r), c);
    for (std::size_t i = 0; i < size(); ++i) (*this)[i] = static_cast<float>(random.normal(i)) * 0.1f;
  }
  operator Matrix<float>() { return {data(), rows, cols}; }
  operator Matrix<const float>() const { return {data(), rows, cols}; }
  std::int64_t rows, cols;
};

/// CPU seconds of this, the only working thread.
template <class Body>
double seconds(const Body& body) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  body();
  return now() - start;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Row offsets of tokens * chosen rows: equal, or falling from expert to expert as in a skewed layer, one expert empty.
std::vector<std::int64_t> row_offsets(bool ragged) {
  std::vector<std::int64_t> counts(experts, tokens * chosen / experts);
  if (ragged) counts = {401, 305, 240, 200, 171, 147, 128, 113, 91, 77, 61, 47, 34, 32, 1, 0};
  std::vector<std::int64_t> offsets(1, 0);
  std::partial_sum(counts.begin(), counts.end(), std::back_inserter(offsets));
  return offsets;
}

/// Expert MLP, forward and backward with weight gradients.
class ExpertMlp {
 public:
  explicit ExpertMlp(bool ragged) : offsets_(row_offsets(ragged)) {}

  void run(Stream& stream) {
    grouped_gemm(stream, x_, offsets_, w1_, no, gate_up_);
    ops::swiglu_forward(stream, gate_up_, probability_.data(), activation_);
    grouped_gemm(stream, activation_, offsets_, w2_, no, out_);
    grouped_gemm(stream, d_out_, offsets_, w2_, yes, d_activation_);
    grouped_gemm_weight_gradient(stream, activation_, d_out_, offsets_, d_w2_);
    ops::swiglu_backward(stream, gate_up_, probability_.data(), d_activation_, d_gate_up_, d_probability_.data());
    grouped_gemm(stream, d_gate_up_, offsets_, w1_, yes, d_x_);
    grouped_gemm_weight_gradient(stream, x_, d_gate_up_, offsets_, d_w1_);
  }

  /// The same six products of every expert, one call of the library each.
  void run_library_alone() {
    per_expert([&](std::int64_t e) { product(part(x_, e), no, weight(w1_, e), no, 0.0f, part(gate_up_, e)); });
    per_expert([&](std::int64_t e) { product(part(activation_, e), no, weight(w2_, e), no, 0.0f, part(out_, e)); });
    per_expert(
        [&](std::int64_t e) { product(part(d_out_, e), no, weight(w2_, e), yes, 0.0f, part(d_activation_, e)); });
    per_expert(
        [&](std::int64_t e) { product(part(activation_, e), yes, part(d_out_, e), no, 1.0f, weight(d_w2_, e)); });
    per_expert([&](std::int64_t e) { product(part(d_gate_up_, e), no, weight(w1_, e), yes, 0.0f, part(d_x_, e)); });
    per_expert([&](std::int64_t e) { product(part(x_, e), yes, part(d_gate_up_, e), no, 1.0f, weight(d_w1_, e)); });
  }

 private:
  static StridedMatrix<float> strided(Matrix<float> x) { return {x.data, x.rows, x.cols, x.cols}; }
  static void product(Matrix<float> a, Transpose ta, Matrix<float> b, Transpose tb, float beta, Matrix<float> c) {
    strided_gemm({a.data, a.rows, a.cols, a.cols}, ta, {b.data, b.rows, b.cols, b.cols}, tb, beta, strided(c));
  }
  template <class Body>
  static void per_expert(const Body& body) {
    for (std::int64_t e = 0; e < experts; ++e) body(e);
  }
  Matrix<float> part(Matrix<float> x, std::int64_t e) { return x.slice(offsets_[e], offsets_[e + 1] - offsets_[e]); }
  static Matrix<float> weight(Matrix<float> w, std::int64_t e) {
    return w.slice(e * (w.rows / experts), w.rows / experts);
  }

  std::vector<std::int64_t> offsets_;
  std::int64_t rows_ = offsets_.back();
  Tensor x_{rows_, hidden}, gate_up_{rows_, 2 * expert_hidden}, activation_{rows_, expert_hidden}, out_{rows_, hidden};
  Tensor d_x_ = x_, d_gate_up_ = gate_up_, d_activation_ = activation_, d_out_ = out_;
  Tensor w1_{experts * hidden, 2 * expert_hidden}, w2_{experts * expert_hidden, hidden}, d_w1_ = w1_, d_w2_ = w2_;
  Tensor probability_{rows_, 1}, d_probability_ = probability_;
};

void expert_mlp(benchmark::State& state, bool ragged) {
  Stream stream;
  ExpertMlp mlp(ragged);
  mlp.run(stream);
  stream.take();
  std::vector<double> ratios;
  for (auto _ : state) {
    const double library = seconds([&] { mlp.run_library_alone(); });
    const double ours = seconds([&] { mlp.run(stream); });
    state.SetIterationTime(ours);
    ratios.push_back(library / ours);
  }
  state.counters["ratio"] = median(ratios);
  state.counters["flops"] =
      benchmark::Counter(static_cast<double>(stream.take().flops.value), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(expert_mlp, even, false)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);
BENCHMARK_CAPTURE(expert_mlp, ragged, true)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);

/// Forward and backward of one sequence of 512 with 8 heads of 64. `share_of_square_product`: its FLOP/s over those of a
/// square product. `share_of_layer`: its time over that of all products of its layer (projections, experts) and itself.
void attention(benchmark::State& state) {
  Stream stream;
  const ops::AttentionShape shape{1, tokens, 8, 8, 64};
  Tensor x(tokens, hidden), qkv(tokens, shape.qkv_size()), output(tokens, shape.query_size()), lse(tokens, shape.heads);
  Tensor d_x = x, d_qkv = qkv, d_output = output;
  Tensor w_qkv(hidden, shape.qkv_size()), w_out(shape.query_size(), hidden), d_w_qkv = w_qkv, d_w_out = w_out;
  Tensor a(1536, 1536), b = a, c = a;
  ExpertMlp mlp(false);
  std::vector<double> square_shares, layer_shares;
  double flops = 0.0;
  for (auto _ : state) {
    const double square = seconds([&] { gemm(stream, a, no, b, no, 0.0f, c); });
    const double square_rate = static_cast<double>(stream.take().flops.value) / square;
    const double products = seconds([&] {
      gemm(stream, x, no, w_qkv, no, 0.0f, qkv);
      gemm(stream, output, no, w_out, no, 0.0f, d_x);
      gemm(stream, d_x, no, w_out, yes, 0.0f, d_output);
      gemm(stream, output, yes, d_x, no, 1.0f, d_w_out);
      gemm(stream, d_qkv, no, w_qkv, yes, 0.0f, d_x);
      gemm(stream, x, yes, d_qkv, no, 1.0f, d_w_qkv);
      mlp.run(stream);
    });
    stream.take();
    const double ours = seconds([&] {
      ops::attention_forward(stream, shape, qkv, output, lse);
      ops::attention_backward(stream, shape, {qkv, output, lse}, d_output, d_qkv);
    });
    const double work = static_cast<double>(stream.take().flops.value);
    state.SetIterationTime(ours);
    flops += work;
    square_shares.push_back(work / ours / square_rate);
    layer_shares.push_back(ours / (ours + products));
  }
  state.counters["share_of_square_product"] = median(square_shares);
  state.counters["share_of_layer"] = median(layer_shares);
  state.counters["flops"] = benchmark::Counter(flops, benchmark::Counter::kIsRate);
}
BENCHMARK(attention)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);

}  // namespace
}  // namespace spillway::device

int main(int argc, char** argv) {
  omp_set_num_threads(1);
  Kokkos::ScopeGuard kokkos(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
