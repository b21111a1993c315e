#pragma once
// Rotary position embedding as the formula reads, in double; arguments as in rotary.hpp.
#include <cmath>

#include "device/ops/rotary.hpp"

namespace spillway::device::ops::reference {

/// Turns q and k heads by `direction` times their angles.
inline void rotary_turn(const RotaryShape& shape, Matrix<double> qkv, double direction) {
  const std::int64_t half = shape.head_dim / 2;
  const auto head_dim = static_cast<double>(shape.head_dim);
  for (std::int64_t r = 0; r < qkv.rows; ++r)
    for (std::int64_t head = 0; head < shape.heads + shape.key_value_heads; ++head)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = direction * static_cast<double>(r % shape.sequence_length) *
                             std::pow(rotary_theta, -2.0 * static_cast<double>(i) / head_dim);
        double& low = qkv.row(r)[head * shape.head_dim + i];
        double& high = qkv.row(r)[head * shape.head_dim + half + i];
        const double a = low, b = high;
        low = a * std::cos(angle) - b * std::sin(angle);
        high = b * std::cos(angle) + a * std::sin(angle);
      }
}

inline void rotary_forward(const RotaryShape& shape, Matrix<double> qkv) { rotary_turn(shape, qkv, 1.0); }
inline void rotary_backward(const RotaryShape& shape, Matrix<double> d_qkv) { rotary_turn(shape, d_qkv, -1.0); }

}  // namespace spillway::device::ops::reference
