#pragma once
// Row-major views of device memory. A view owns nothing.
#include <cstdint>
#include <type_traits>

#include "base/units.hpp"

namespace spillway::device {

/// [rows, cols], element (i, j) at data[i * cols + j].
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0;

  std::int64_t size() const { return rows * cols; }
  Bytes bytes() const { return Bytes(size() * static_cast<std::int64_t>(sizeof(T))); }
  T* row(std::int64_t i) const { return data + i * cols; }
  /// Rows [first, first + count).
  Matrix slice(std::int64_t first, std::int64_t count) const { return {row(first), count, cols}; }
  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, cols}; }
};

}  // namespace spillway::device
