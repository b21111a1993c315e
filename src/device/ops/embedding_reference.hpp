#pragma once
// Token embedding as the formula reads, in double; arguments as in embedding.hpp.
#include "device/ops/embedding.hpp"

namespace spillway::device::ops::reference {

inline void embedding_forward(const std::int32_t* tokens, Matrix<const double> table, Matrix<double> out) {
  for (std::int64_t s = 0; s < out.rows; ++s)
    for (std::int64_t j = 0; j < out.cols; ++j) out.row(s)[j] = table.row(tokens[s])[j];
}

inline void embedding_backward(const std::int32_t* tokens, Matrix<const double> d_out, Matrix<double> d_table) {
  for (std::int64_t s = 0; s < d_out.rows; ++s)
    for (std::int64_t j = 0; j < d_out.cols; ++j) d_table.row(tokens[s])[j] += d_out.row(s)[j];
}

}  // namespace spillway::device::ops::reference
