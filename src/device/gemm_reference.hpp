#pragma once
// The products of gemm.hpp as plain loops in double: what tests and the one-rank verification model compare with.
// Same arguments and shapes, no stream, no charge.
#include "device/gemm.hpp"

namespace spillway::device::reference {

void gemm(Matrix<const double> a, Transpose transpose_a, Matrix<const double> b, Transpose transpose_b, double beta,
          Matrix<double> c);

void grouped_gemm(Matrix<const double> a, RowOffsets offsets, Matrix<const double> w, Transpose transpose_w,
                  Matrix<double> c);

void grouped_gemm_weight_gradient(Matrix<const double> a, Matrix<const double> b, RowOffsets offsets,
                                  Matrix<double> dw);

}  // namespace spillway::device::reference
