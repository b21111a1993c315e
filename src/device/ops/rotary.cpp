#include "device/ops/rotary.hpp"

#include <cmath>

#include "device/ops/blocks.hpp"

namespace spillway::device::ops {
namespace {

/// direction 1 turns by the angles of the table, -1 back.
void turn(Stream& stream, Matrix<const float> table, const RotaryShape& shape, Matrix<float> qkv, float direction) {
  expect_shape("rotary: qkv", qkv, qkv.rows, shape.qkv_size());
  const std::int64_t half = shape.head_dim / 2, turned = shape.heads + shape.key_value_heads;
  const std::int64_t length = shape.sequence_length;
  const Work work{{}, Matrix<float>{nullptr, qkv.rows, turned * shape.head_dim}.bytes() * 2};
  stream.parallel_for(
      "rotary", qkv.rows, work, KOKKOS_LAMBDA(std::int64_t r) {
        const float* cosine = table.row(r % length);
        const float* sine = cosine + half;
        for (std::int64_t head = 0; head < turned; ++head) {
          float* low = qkv.row(r) + head * 2 * half;
          float* high = low + half;
#pragma omp simd
          for (std::int64_t i = 0; i < half; ++i) {
            const float a = low[i], b = high[i], s = direction * sine[i];
            low[i] = a * cosine[i] - b * s;
            high[i] = b * cosine[i] + a * s;
          }
        }
      });
}

}  // namespace

Matrix<const float> RotaryTable::get(std::int64_t sequence_length, std::int64_t head_dim) {
  ensure(head_dim % 2 == 0, "rotary: head_dim {} is odd", head_dim);
  if (sequence_length != sequence_length_ || head_dim != head_dim_) {
    values_ = Kokkos::View<float*>("rotary_table", static_cast<std::size_t>(sequence_length * head_dim));
    const auto host = Kokkos::create_mirror_view(values_);
    const std::int64_t half = head_dim / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency = std::pow(rotary_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      for (std::int64_t p = 0; p < sequence_length; ++p) {
        const double angle = static_cast<double>(p) * frequency;
        host.data()[p * head_dim + i] = static_cast<float>(std::cos(angle));
        host.data()[p * head_dim + half + i] = static_cast<float>(std::sin(angle));
      }
    }
    Kokkos::deep_copy(values_, host);
    sequence_length_ = sequence_length;
    head_dim_ = head_dim;
  }
  return {values_.data(), sequence_length, head_dim};
}

void rotary_forward(Stream& stream, RotaryTable& table, const RotaryShape& shape, Matrix<float> qkv) {
  turn(stream, table.get(shape.sequence_length, shape.head_dim), shape, qkv, 1.0f);
}

void rotary_backward(Stream& stream, RotaryTable& table, const RotaryShape& shape, Matrix<float> d_qkv) {
  turn(stream, table.get(shape.sequence_length, shape.head_dim), shape, d_qkv, -1.0f);
}

}  // namespace spillway::device::ops
