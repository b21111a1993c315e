#pragma once
// Rotary position embedding (Su et al. 2021): component i of a head turns with component i + head_dim / 2 by the angle
// position * theta^(-2i / head_dim). Turning back by the same angle is the backward pass.
#include <Kokkos_Core.hpp>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

inline constexpr double rotary_theta = 10000.0;

/// A row of qkv is one token: `heads` query heads, then `key_value_heads` key heads, then as many value heads.
/// Row r holds position r mod sequence_length. head_dim is even.
struct RotaryShape {
  std::int64_t sequence_length = 0, heads = 0, key_value_heads = 0, head_dim = 0;
  std::int64_t qkv_size() const { return (heads + 2 * key_value_heads) * head_dim; }
};

/// Owns the cosines and sines of one shape, in device memory; must end before Kokkos does.
class RotaryTable {
 public:
  /// [sequence_length, head_dim]: the cosines of a position's angles, then their sines. Computed when the shape differs
  /// from that of the last call.
  Matrix<const float> get(std::int64_t sequence_length, std::int64_t head_dim);

 private:
  Kokkos::View<float*> values_;
  std::int64_t sequence_length_ = 0, head_dim_ = 0;
};

/// Turns the q and k heads of qkv [S, qkv_size] in place. Charges the q and k parts twice (read and written).
void rotary_forward(Stream& stream, RotaryTable& table, const RotaryShape& shape, Matrix<float> qkv);
/// The gradient of rotary_forward, in place on the gradient of its output; charges the same.
void rotary_backward(Stream& stream, RotaryTable& table, const RotaryShape& shape, Matrix<float> d_qkv);

}  // namespace spillway::device::ops
