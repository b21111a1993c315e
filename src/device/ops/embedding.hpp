#pragma once
// Token embedding: a row of the table per token. Where the vocabulary is divided, a table holds the ids from `first_id` on,
// and other tokens count as zeros: the sum over the parts is the embedding.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// out[s] = table[tokens[s] - first_id], or 0 where the table does not hold the id; out [S, h], table [V, h], S token ids.
/// Charges tokens + out twice: S rows are read and S written, however large the table is.
void embedding_forward(Stream& stream, const std::int32_t* tokens, Matrix<const float> table, Matrix<float> out,
                       std::int64_t first_id = 0);

/// d_table[tokens[s] - first_id] += d_out[s] where the table holds the id, in the order of s. Charges tokens + d_out + S rows
/// of d_table twice.
void embedding_backward(Stream& stream, const std::int32_t* tokens, Matrix<const float> d_out, Matrix<float> d_table,
                        std::int64_t first_id = 0);

}  // namespace spillway::device::ops
