#pragma once
// What both directions of attention.cpp cut their work into. Private to it.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "device/host/strided_gemm.hpp"
#include "device/ops/attention.hpp"

namespace spillway::device::ops {

// Queries per block: half of a diagonal block is computed in vain, but small blocks make slow products. Keys per block:
// their packed copies and the score blocks fit a core's second-level cache. Measured at head_dim 64 and s = 512.
inline constexpr std::int64_t query_block = 64, key_block = 512;
static_assert(key_block % query_block == 0);

/// Where a head lies: its number, its sequence's first row, its columns in qkv (output: the columns of its query).
struct Head {
  std::int64_t index, first_row, query, key, value;
};

inline Head locate(const AttentionShape& shape, std::int64_t sequence, std::int64_t head) {
  const std::int64_t key = shape.query_size() + head / shape.heads_per_group() * shape.head_dim;
  return {head, sequence * shape.sequence_length, head * shape.head_dim, key, key + shape.key_value_size()};
}

/// Rows [first, first + rows) of the head_dim columns that start at `column`.
template <class T>
StridedMatrix<T> head_block(Matrix<T> x, std::int64_t first, std::int64_t rows, std::int64_t column,
                            std::int64_t head_dim) {
  return {x.row(first) + column, rows, head_dim, x.cols};
}

template <class T>
StridedMatrix<T> rows(Matrix<T> x, std::int64_t count) {
  return {x.data, count, x.cols, x.cols};
}

/// Hands out contiguous blocks of this thread's scratch memory, which is kept between calls; `elements` bounds their sum.
class Scratch {
 public:
  explicit Scratch(std::int64_t elements) {
    thread_local std::vector<float> memory;
    if (std::ssize(memory) < elements) memory.resize(static_cast<std::size_t>(elements));
    next_ = memory.data();
  }
  Matrix<float> take(std::int64_t block_rows, std::int64_t block_cols) {
    float* const block = next_;
    next_ += block_rows * block_cols;
    return {block, block_rows, block_cols};
  }

 private:
  float* next_;
};

/// Copies with another distance between rows.
inline void copy(StridedMatrix<const float> from, StridedMatrix<float> to) {
  for (std::int64_t i = 0; i < from.rows; ++i)
    std::copy_n(from.data + i * from.stride, from.cols, to.data + i * to.stride);
}

/// The block, contiguous: the library is a fifth slower on heads whose rows lie a whole row of qkv apart.
inline StridedMatrix<const float> pack(StridedMatrix<const float> x, Matrix<float> memory) {
  const StridedMatrix<float> packed{memory.data, x.rows, x.cols, x.cols};
  copy(x, packed);
  return {packed.data, packed.rows, packed.cols, packed.stride};
}

}  // namespace spillway::device::ops
