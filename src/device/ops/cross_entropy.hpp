#pragma once
// Losses: cross-entropy at the output head, and the sum of squares that stands in where the head is off.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// Returns scale * sum over rows of -log softmax(logits)[label], rows added in order in double, and replaces logits
/// [S, V] by their gradient. S labels below V; scale is 1 / tokens of the global batch.
/// Charges labels + logits twice (in place).
double cross_entropy(Stream& stream, Matrix<float> logits, const std::int32_t* labels, float scale);

/// Returns scale / 2 * sum of x^2, rows added in order in double. Charges x.
double square_loss(Stream& stream, Matrix<const float> x, float scale);
/// d_x = scale * x, overwritten; d_x may be x. Charges x + d_x.
void square_loss_backward(Stream& stream, Matrix<const float> x, float scale, Matrix<float> d_x);

}  // namespace spillway::device::ops
