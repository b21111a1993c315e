#pragma once
// Shared by the operators: ranges cut into blocks, and shape checks.
#include <cstdint>

#include "base/error.hpp"
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// Elements of a block of an elementwise operator.
inline constexpr std::int64_t element_block = 4096;
/// Columns of a block where a sum over rows runs in row order: blocks are independent, rows inside a block are not.
inline constexpr std::int64_t column_block = 256;
/// Rows between two steps that need a number per row (kept on the stack, so no memory is allocated for it).
inline constexpr std::int64_t row_chunk = 64;

/// Throws InternalError unless `matrix` is [rows, cols].
template <class T>
void expect_shape(const char* name, const Matrix<T>& matrix, std::int64_t rows, std::int64_t cols) {
  ensure(matrix.rows == rows && matrix.cols == cols, "{} is [{}, {}], expected [{}, {}]", name, matrix.rows,
         matrix.cols, rows, cols);
}

/// Runs body(first, last) over [0, n) cut into blocks of `block`, in any order.
template <class Body>
void parallel_blocks(Stream& stream, const char* name, std::int64_t n, std::int64_t block, const Body& body) {
  stream.parallel_for(
      name, (n + block - 1) / block, Work{}, KOKKOS_LAMBDA(std::int64_t b) {
        const std::int64_t first = b * block;
        body(first, first + block < n ? first + block : n);
      });
}

}  // namespace spillway::device::ops
