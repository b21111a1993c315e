#include "device/ops/rms_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/ops/blocks.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

KOKKOS_INLINE_FUNCTION float inverse_rms(const float* x, std::int64_t h) {
  const float squares = lane_sum(h, [x](std::int64_t j) { return x[j] * x[j]; });
  return 1.0f / std::sqrt(squares / static_cast<float>(h) + static_cast<float>(rms_norm_epsilon));
}

/// d_x of one row: inverse * (gain * d_out - x * inverse^2 * mean(gain * d_out * x)).
template <bool accumulate>
KOKKOS_INLINE_FUNCTION void row_gradient(const Matrix<const float>& gain, const float* x, const float* d_out,
                                         float inverse, float* d_x) {
  const std::int64_t h = gain.cols;
  const float* g = gain.data;
  const float dot = lane_sum(h, [=](std::int64_t j) { return g[j] * d_out[j] * x[j]; });
  const float along_x = inverse * inverse * inverse * dot / static_cast<float>(h);
#pragma omp simd
  for (std::int64_t j = 0; j < h; ++j) {
    const float d = inverse * g[j] * d_out[j] - along_x * x[j];
    d_x[j] = accumulate ? d_x[j] + d : d;
  }
}

}  // namespace

void rms_norm_forward(Stream& stream, Matrix<const float> x, Matrix<const float> gain, Matrix<float> out) {
  expect_shape("rms_norm: gain", gain, 1, x.cols);
  expect_shape("rms_norm: out", out, x.rows, x.cols);
  const Work work{{}, x.bytes() + gain.bytes() + out.bytes()};
  stream.parallel_for(
      "rms_norm_forward", x.rows, work, KOKKOS_LAMBDA(std::int64_t i) {
        const float* xi = x.row(i);
        const float* g = gain.data;
        float* yi = out.row(i);
        const float inverse = inverse_rms(xi, x.cols);
#pragma omp simd
        for (std::int64_t j = 0; j < x.cols; ++j) yi[j] = xi[j] * inverse * g[j];
      });
}

void rms_norm_backward(Stream& stream, Matrix<const float> x, Matrix<const float> gain, Matrix<const float> d_out,
                       Matrix<float> d_x, Matrix<float> d_gain, bool accumulate_d_x) {
  expect_shape("rms_norm: gain", gain, 1, x.cols);
  expect_shape("rms_norm: d_out", d_out, x.rows, x.cols);
  expect_shape("rms_norm: d_x", d_x, x.rows, x.cols);
  expect_shape("rms_norm: d_gain", d_gain, 1, x.cols);
  stream.charge(
      {{}, x.bytes() + gain.bytes() + d_out.bytes() + d_x.bytes() * (accumulate_d_x ? 2 : 1) + d_gain.bytes() * 2});
  std::array<float, row_chunk> inverses;
  for (std::int64_t first = 0; first < x.rows; first += row_chunk) {
    const std::int64_t rows = std::min(row_chunk, x.rows - first);
    float* inverse = inverses.data();
    stream.parallel_for(
        "rms_norm_backward_x", rows, Work{}, KOKKOS_LAMBDA(std::int64_t r) {
          const std::int64_t i = first + r;
          inverse[r] = inverse_rms(x.row(i), x.cols);
          if (accumulate_d_x)
            row_gradient<true>(gain, x.row(i), d_out.row(i), inverse[r], d_x.row(i));
          else
            row_gradient<false>(gain, x.row(i), d_out.row(i), inverse[r], d_x.row(i));
        });
    parallel_blocks(
        stream, "rms_norm_backward_gain", x.cols, column_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
          float* sum = d_gain.data;
          for (std::int64_t r = 0; r < rows; ++r) {
            const float* xi = x.row(first + r);
            const float* di = d_out.row(first + r);
#pragma omp simd
            for (std::int64_t j = begin; j < end; ++j) sum[j] += di[j] * (xi[j] * inverse[r]);
          }
        });
  }
}

}  // namespace spillway::device::ops
