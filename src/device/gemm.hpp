#pragma once
// Matrix products, supplied by a backend (host/gemm.cpp). All matrices are row-major.
#include <cstdint>
#include <span>

#include "device/matrix.hpp"
#include "device/stream.hpp"
#include "workload/shape/slices.hpp"

namespace spillway::device {

enum class Transpose : bool { no = false, yes = true };

using spillway::row_tile;  // slices of a dispatch are whole tiles

/// c[m,n] = op(a) op(b) + beta c; beta is 0 or 1. Charges 2mnk FLOPs. Any extent may be 0.
void gemm(Stream& stream, Matrix<const float> a, Transpose transpose_a, Matrix<const float> b, Transpose transpose_b,
          float beta, Matrix<float> c);

/// Rows of experts that lie one after the other: expert g owns rows [offsets[g], offsets[g + 1]).
using RowOffsets = std::span<const std::int64_t>;

/// For every group g: c rows of g = (a rows of g) op(w[g]), with w [groups * K, N] holding the groups' matrices one
/// below the other ([K, N] each; with transpose_w the product is with their transposes, so a is [rows, N], c [rows, K]).
/// Groups without rows cost nothing; weights of the other groups are charged once.
void grouped_gemm(Stream& stream, Matrix<const float> a, RowOffsets offsets, Matrix<const float> w,
                  Transpose transpose_w, Matrix<float> c);

/// For every group g: dw[g] += (a rows of g)^T (b rows of g), tile by tile in row order; dw [groups * K, N], a [rows, K],
/// b [rows, N].
void grouped_gemm_weight_gradient(Stream& stream, Matrix<const float> a, Matrix<const float> b, RowOffsets offsets,
                                  Matrix<float> dw);

/// Name and version of the library behind the products, for the report.
const char* gemm_library();

}  // namespace spillway::device
