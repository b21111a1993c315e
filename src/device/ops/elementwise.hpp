#pragma once
// Adding, filling, copying, and looking at the values of matrices.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// sum += x, of one shape. Charges x + 2 sum.
void accumulate(Stream& stream, Matrix<const float> x, Matrix<float> sum);
/// Every element becomes value. Charges x.
void fill(Stream& stream, float value, Matrix<float> x);
/// dst = src, of one shape, not overlapping. Charges src + dst.
void copy(Stream& stream, Matrix<const float> src, Matrix<float> dst);

/// Sum over i of bits(x_i) * (2 (first_index + i) + 1) modulo 2^64. Sums of parts add up to that of the whole, in
/// any order; a flipped bit or a swap of two different values changes it. Uncharged: it belongs to the checks.
std::uint64_t checksum(Matrix<const float> x, std::uint64_t first_index);
/// No infinity and no NaN. Uncharged.
bool all_finite(Matrix<const float> x);

}  // namespace spillway::device::ops
