#pragma once
// Row movement for dispatch and combine. Index arrays count their bytes like matrices; any extent may be 0.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// dst[i] = src[index[i]]; dst [n, h], src [any, h], n indices. Charges index + dst + what is read of src: all of it, or
/// n rows where it has more.
void gather_rows(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst);
/// dst[index[i]] = src[i]; src [n, h], dst [any, h], no index twice. Charges index + src + n rows written.
void scatter_rows(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst);

/// The same for single numbers, whatever the shapes: element i of dst is element index[i] of src, n = dst.size().
/// Charges index + n elements read + dst.
void gather_values(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst);
/// Element index[i] of dst becomes element i of src, n = src.size(). Charges index + src + n elements written.
void scatter_values(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst);

/// out[t] (+)= rows[position[t,0]] + rows[position[t,1]] + ..., added one after the other in slot order; rows [n, h],
/// position [T, k], out [T, h]. Without slots the sum is 0. Charges rows + position + out (twice if accumulated).
void sum_rows(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position, Matrix<float> out,
              bool accumulate);

/// As sum_rows with row position[t,j] multiplied by weight[t,j]; weight [T, k], charged too.
void weighted_sum_rows(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position,
                       Matrix<const float> weight, Matrix<float> out, bool accumulate);
/// d_rows[position[t,j]] = weight[t,j] d_out[t] and d_weight[t,j] = rows[position[t,j]] . d_out[t]; both overwritten.
/// Rows without a slot are left alone; no row has two. Charges every matrix once.
void weighted_sum_rows_backward(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position,
                                Matrix<const float> weight, Matrix<const float> d_out, Matrix<float> d_rows,
                                Matrix<float> d_weight);

}  // namespace spillway::device::ops
