#pragma once
// Token embedding: a row of the table per token.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// out[s] = table[tokens[s]]; out [S, h], table [V, h], S token ids below V.
/// Charges tokens + out twice: S rows are read and S written, however large the table is.
void embedding_forward(Stream& stream, const std::int32_t* tokens, Matrix<const float> table, Matrix<float> out);

/// d_table[tokens[s]] += d_out[s], in the order of s. Charges tokens + d_out + S rows of d_table twice.
void embedding_backward(Stream& stream, const std::int32_t* tokens, Matrix<const float> d_out, Matrix<float> d_table);

}  // namespace spillway::device::ops
