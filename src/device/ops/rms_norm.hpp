#pragma once
// RMSNorm: out = gain * x / sqrt(mean(x^2) + epsilon), row by row (Zhang and Sennrich 2019).
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

inline constexpr double rms_norm_epsilon = 1e-6;

/// x [S, h], gain [1, h], out [S, h]; out may be x. Charges x + gain + out.
void rms_norm_forward(Stream& stream, Matrix<const float> x, Matrix<const float> gain, Matrix<float> out);

/// x and gain as in forward (the inverse root mean square is computed again from x); d_out [S, h].
/// d_x [S, h] is added to or overwritten and may not be d_out; d_gain [1, h] is added to, in row order.
/// Charges x + gain + d_out + d_x (twice if accumulated) + 2 d_gain.
void rms_norm_backward(Stream& stream, Matrix<const float> x, Matrix<const float> gain, Matrix<const float> d_out,
                       Matrix<float> d_x, Matrix<float> d_gain, bool accumulate_d_x);

}  // namespace spillway::device::ops
