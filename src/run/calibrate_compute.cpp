#include "run/calibrate_compute.hpp"

#include <atomic>
#include <cstring>
#include <thread>

#include "device/gemm.hpp"
#include "device/ops/attention.hpp"
#include "device/ops/rms_norm.hpp"
#include "device/ops/swiglu.hpp"
#include "run/calibrate_walk.hpp"

namespace spillway {
namespace {

namespace ops = device::ops;
using device::Matrix;
using device::Stream;
using device::Transpose;

constexpr Transpose no = Transpose::no, yes = Transpose::yes;
constexpr std::int64_t MiB = std::int64_t{1} << 20;

/// A matrix that owns its values: small numbers, none of them zero.
class Values {
 public:
  Values(std::int64_t rows, std::int64_t cols)
      : data_(static_cast<std::size_t>(rows * cols)), rows_(rows), cols_(cols) {
    for (std::size_t i = 0; i < data_.size(); ++i) data_[i] = 0.01f * (1.0f + static_cast<float>(i % 97));
  }
  Matrix<float> get() { return {data_.data(), rows_, cols_}; }

 private:
  std::vector<float> data_;
  std::int64_t rows_, cols_;
};

/// Work per second of `body`, which charges the stream: FLOPs where it has any, else bytes.
template <class Body>
SampleSummary rate(const Together& together, Stream& stream, const Body& body) {
  device::Work work;
  stream.take();
  std::vector<double> samples = together.seconds([&] {
    body();
    work = stream.take();
  });
  const auto amount = static_cast<double>(work.flops.value > 0 ? work.flops.value : work.bytes.value);
  for (double& s : samples) s = amount / s;
  return summarize(std::move(samples));
}

/// y = x W with its two gradients, as one matrix or one per expert.
class Product {
 public:
  Product(std::int64_t groups, std::int64_t rows, std::int64_t k, std::int64_t n)
      : x_(groups * rows, k), w_(groups * k, n), y_(groups * rows, n), dw_(groups * k, n) {
    for (std::int64_t g = 0; g <= groups; ++g) offsets_.push_back(g * rows);
  }

  void measure(const Together& together, Stream& stream, std::vector<SampleSummary>& rates) {
    const Matrix<float> x = x_.get(), w = w_.get(), y = y_.get(), dw = dw_.get();
    if (offsets_.size() == 2) {
      rates.push_back(rate(together, stream, [&] { device::gemm(stream, x, no, w, no, 0, y); }));
      rates.push_back(rate(together, stream, [&] { device::gemm(stream, y, no, w, yes, 0, x); }));
      rates.push_back(rate(together, stream, [&] { device::gemm(stream, x, yes, y, no, 1, dw); }));
      return;
    }
    rates.push_back(rate(together, stream, [&] { device::grouped_gemm(stream, x, offsets_, w, no, y); }));
    rates.push_back(rate(together, stream, [&] { device::grouped_gemm(stream, y, offsets_, w, yes, x); }));
    rates.push_back(rate(together, stream, [&] { device::grouped_gemm_weight_gradient(stream, x, y, offsets_, dw); }));
  }

 private:
  Values x_, w_, y_, dw_;
  std::vector<std::int64_t> offsets_;
};

SampleSummary measure_attention(const Together& together, Stream& stream) {
  const ops::AttentionShape shape{1, 512, 8, 8, 64};
  Values qkv(shape.rows(), shape.qkv_size()), d_qkv(shape.rows(), shape.qkv_size());
  Values out(shape.rows(), shape.query_size()), d_out(shape.rows(), shape.query_size()),
      sums(shape.rows(), shape.heads);
  return rate(together, stream, [&] {
    ops::attention_forward(stream, shape, qkv.get(), out.get(), sums.get());
    ops::attention_backward(stream, shape, {qkv.get(), out.get(), sums.get()}, d_out.get(), d_qkv.get());
  });
}

/// a = b + s c in blocks, `n` values each; charges 3 n values.
void triad(Stream& stream, float* memory, std::int64_t n) {
  constexpr std::int64_t block = 4096;
  float *a = memory, *b = memory + n, *c = b + n;
  stream.parallel_for("triad", (n + block - 1) / block, {{}, Bytes(3 * n * std::int64_t{sizeof(float)})},
                      [=](std::int64_t i) {
                        const std::int64_t end = std::min(n, (i + 1) * block);
#pragma omp simd
                        for (std::int64_t j = i * block; j < end; ++j) a[j] = b[j] + 0.5f * c[j];
                      });
}

}  // namespace

CalibrateScale CalibrateScale::full() {
  return {9,
          2048,
          {{512, 256, 16, 128}, {1024, 512, 8, 256}},
          {Bytes(MiB), Bytes(4 * MiB), Bytes(16 * MiB)},
          Bytes(256 * MiB),
          {Bytes(MiB / 256), Bytes(MiB / 64), Bytes(MiB / 16), Bytes(MiB / 4), Bytes(MiB), Bytes(4 * MiB),
           Bytes(16 * MiB)}};
}

CalibrateScale CalibrateScale::quick() {
  return {5, 512, {{256, 128, 4, 64}}, {Bytes(MiB / 4), Bytes(MiB)}, Bytes(16 * MiB), {Bytes(MiB / 64), Bytes(MiB)}};
}

double ProductRates::best() const {
  double most = square.best;
  for (const SampleSummary& s : shapes) most = std::max(most, s.best);
  return most;
}

double MemoryRates::passes() const {
  const SampleSummary kinds[] = {over_parts(triads), over_parts(norms), over_parts(activations)};
  return rate_of_equal_parts(kinds);
}

double MemoryRates::worst_spread() const {
  double worst = 0;
  for (const auto* kind : {&triads, &norms, &activations})
    for (const SampleSummary& s : *kind) worst = std::max(worst, s.spread);
  return worst;
}

ProductRates measure_products(const Together& together, const CalibrateScale& scale) {
  Stream stream;
  ProductRates rates;
  {
    Values a(scale.square, scale.square), b(scale.square, scale.square), c(scale.square, scale.square);
    rates.square = rate(together, stream, [&] { device::gemm(stream, a.get(), no, b.get(), no, 0, c.get()); });
  }
  for (const ExpertShape& e : scale.experts) {
    const std::int64_t tokens = e.count * e.rows / 4;  // four experts each
    Product(e.count, e.rows, e.hidden, 2 * e.expert_hidden).measure(together, stream, rates.shapes);
    Product(e.count, e.rows, e.expert_hidden, e.hidden).measure(together, stream, rates.shapes);
    Product(1, tokens, e.hidden, 3 * e.hidden).measure(together, stream, rates.shapes);
    Product(1, tokens, e.hidden, e.hidden).measure(together, stream, rates.shapes);
  }
  rates.attention = measure_attention(together, stream);
  return rates;
}

MemoryRates measure_memory(const Together& together, const CalibrateScale& scale) {
  constexpr std::int64_t hidden = 512;
  Stream stream;
  Walk walk(scale.memory);
  Values gain(1, hidden);
  MemoryRates rates;
  for (const Bytes size : scale.passes) {
    const std::int64_t n = size.value / static_cast<std::int64_t>(sizeof(float)), rows = n / hidden;
    rates.triads.push_back(rate(together, stream, [&] { triad(stream, walk.next(3 * n), n); }));
    rates.norms.push_back(rate(together, stream, [&] {
      float* const x = walk.next(2 * n);
      ops::rms_norm_forward(stream, {x, rows, hidden}, gain.get(), {x + n, rows, hidden});
    }));
    rates.activations.push_back(rate(together, stream, [&] {
      float* const gate_up = walk.next(2 * n);
      ops::swiglu_forward(stream, {gate_up, rows, hidden}, nullptr, {gate_up + n, rows, hidden / 2});
    }));
    rates.copies.push_back(rate(together, stream, [&] {
      float* const from = walk.next(2 * n);
      std::memcpy(from + n, from, static_cast<std::size_t>(size.value));
      stream.charge({{}, size});
    }));
  }
  return rates;
}

SampleSummary measure_launch(const Together& together) {
  constexpr int launches = 100;
  Stream stream;
  float value = 0;
  float* const target = &value;
  std::vector<double> samples = together.seconds([&] {
    for (int i = 0; i < launches; ++i) stream.parallel_for("launch", 1, {}, [=](std::int64_t) { *target += 1; });
  });
  for (double& s : samples) s /= launches;
  return summarize(std::move(samples));
}

SampleSummary measure_interference(const Together& together, const CalibrateScale& scale) {
  const std::int64_t n = scale.square / 2;
  Stream stream;
  Values a(n, n), b(n, n), c(n, n), source(1, 4 * MiB), copy(1, 4 * MiB);
  const auto product = [&] { device::gemm(stream, a.get(), no, b.get(), no, 0, c.get()); };
  const SampleSummary alone = summarize(together.seconds(product));
  std::atomic<bool> stop{false};
  std::thread copier([&, to = copy.get(), from = source.get()] {
    while (!stop) std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes().value));
  });
  std::vector<double> samples = together.seconds(product);
  stop = true;
  copier.join();
  for (double& s : samples) s /= alone.median;
  return summarize(std::move(samples));
}

}  // namespace spillway
