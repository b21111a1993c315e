#include "device/ops/swiglu.hpp"

#include <cmath>

#include "base/error.hpp"
#include "device/ops/exponential.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

void check(Matrix<const float> gate_up, Matrix<const float> out) {
  ensure(gate_up.rows == out.rows && gate_up.cols == 2 * out.cols, "SwiGLU of [{}, {}] does not give [{}, {}]",
         gate_up.rows, gate_up.cols, out.rows, out.cols);
}

Bytes column_bytes(const float* column, std::int64_t rows) {
  return Bytes(column == nullptr ? 0 : rows * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace

void swiglu_forward(Stream& stream, Matrix<const float> gate_up, const float* row_weight, Matrix<float> out) {
  check(gate_up, out);
  const Work work{{}, gate_up.bytes() + out.bytes() + column_bytes(row_weight, out.rows)};
  stream.parallel_for(
      "swiglu_forward", out.rows, work, KOKKOS_LAMBDA(std::int64_t i) {
        const float *gate = gate_up.row(i), *up = gate + out.cols;
        const float weight = row_weight == nullptr ? 1.0f : row_weight[i];
        float* result = out.row(i);
#pragma omp simd
        for (std::int64_t j = 0; j < out.cols; ++j) result[j] = weight * (gate[j] * sigmoid(gate[j])) * up[j];
      });
}

void swiglu_backward(Stream& stream, Matrix<const float> gate_up, const float* row_weight, Matrix<const float> d_out,
                     Matrix<float> d_gate_up, float* d_row_weight) {
  check(gate_up, d_out);
  check(d_gate_up, d_out);
  const Work work{{},
                  gate_up.bytes() + d_out.bytes() + d_gate_up.bytes() + column_bytes(row_weight, d_out.rows) +
                      column_bytes(d_row_weight, d_out.rows)};
  stream.parallel_for(
      "swiglu_backward", d_out.rows, work, KOKKOS_LAMBDA(std::int64_t i) {
        const std::int64_t m = d_out.cols;
        const float *gate = gate_up.row(i), *up = gate + m, *d = d_out.row(i);
        float *d_gate = d_gate_up.row(i), *d_up = d_gate + m;
        const float weight = row_weight == nullptr ? 1.0f : row_weight[i];
        const float d_weight = lane_sum(m, [=](std::int64_t j) {
          const float s = sigmoid(gate[j]);
          const float silu = gate[j] * s;
          const float d_product = weight * d[j];
          d_up[j] = d_product * silu;
          d_gate[j] = d_product * up[j] * (s + silu * (1.0f - s));
          return d[j] * silu * up[j];
        });
        if (d_row_weight != nullptr) d_row_weight[i] = d_weight;
      });
}

namespace reference {

void swiglu_forward(Matrix<const double> gate_up, const double* row_weight, Matrix<double> out) {
  for (std::int64_t i = 0; i < out.rows; ++i)
    for (std::int64_t j = 0; j < out.cols; ++j) {
      const double gate = gate_up.row(i)[j], up = gate_up.row(i)[out.cols + j];
      out.row(i)[j] = (row_weight == nullptr ? 1.0 : row_weight[i]) * gate / (1.0 + std::exp(-gate)) * up;
    }
}

void swiglu_backward(Matrix<const double> gate_up, const double* row_weight, Matrix<const double> d_out,
                     Matrix<double> d_gate_up, double* d_row_weight) {
  for (std::int64_t i = 0; i < d_out.rows; ++i) {
    double d_weight = 0.0;
    for (std::int64_t j = 0; j < d_out.cols; ++j) {
      const double gate = gate_up.row(i)[j], up = gate_up.row(i)[d_out.cols + j], d = d_out.row(i)[j];
      const double weight = row_weight == nullptr ? 1.0 : row_weight[i];
      const double sigmoid = 1.0 / (1.0 + std::exp(-gate));
      d_gate_up.row(i)[j] = weight * d * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
      d_gate_up.row(i)[d_out.cols + j] = weight * d * gate * sigmoid;
      d_weight += d * gate * sigmoid * up;
    }
    if (d_row_weight != nullptr) d_row_weight[i] = d_weight;
  }
}

}  // namespace reference
}  // namespace spillway::device::ops
