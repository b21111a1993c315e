#pragma once
// SwiGLU, optionally weighted per row by the router probability: out = w * silu(gate) * up.
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// gate_up [N, 2m] (gate, then up), row_weight [N] or nullptr for weight 1, out [N, m].
/// Charges no FLOPs; bytes of gate_up, out and, where present, row_weight.
void swiglu_forward(Stream& stream, Matrix<const float> gate_up, const float* row_weight, Matrix<float> out);

/// Overwrites d_gate_up [N, 2m] and, unless it is nullptr, d_row_weight [N]; d_out [N, m].
/// Charges no FLOPs; bytes of gate_up, d_out, d_gate_up and, where present, row_weight and d_row_weight.
void swiglu_backward(Stream& stream, Matrix<const float> gate_up, const float* row_weight, Matrix<const float> d_out,
                     Matrix<float> d_gate_up, float* d_row_weight);

namespace reference {
void swiglu_forward(Matrix<const double> gate_up, const double* row_weight, Matrix<double> out);
void swiglu_backward(Matrix<const double> gate_up, const double* row_weight, Matrix<const double> d_out,
                     Matrix<double> d_gate_up, double* d_row_weight);
}  // namespace reference

}  // namespace spillway::device::ops
