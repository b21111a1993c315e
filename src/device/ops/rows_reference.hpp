#pragma once
// Row movement as the formulas read, in double; arguments as in rows.hpp.
#include "device/ops/rows.hpp"

namespace spillway::device::ops::reference {

inline void gather_rows(Matrix<const double> src, const std::int32_t* index, Matrix<double> dst) {
  for (std::int64_t i = 0; i < dst.rows; ++i)
    for (std::int64_t c = 0; c < dst.cols; ++c) dst.row(i)[c] = src.row(index[i])[c];
}

inline void scatter_rows(Matrix<const double> src, const std::int32_t* index, Matrix<double> dst) {
  for (std::int64_t i = 0; i < src.rows; ++i)
    for (std::int64_t c = 0; c < src.cols; ++c) dst.row(index[i])[c] = src.row(i)[c];
}

inline void weighted_sum_rows(Matrix<const double> rows, Matrix<const std::int32_t> position,
                              Matrix<const double> weight, Matrix<double> out, bool accumulate) {
  for (std::int64_t t = 0; t < out.rows; ++t)
    for (std::int64_t c = 0; c < out.cols; ++c) {
      double sum = accumulate ? out.row(t)[c] : 0;
      for (std::int64_t j = 0; j < position.cols; ++j) sum += weight.row(t)[j] * rows.row(position.row(t)[j])[c];
      out.row(t)[c] = sum;
    }
}

inline void weighted_sum_rows_backward(Matrix<const double> rows, Matrix<const std::int32_t> position,
                                       Matrix<const double> weight, Matrix<const double> d_out, Matrix<double> d_rows,
                                       Matrix<double> d_weight) {
  for (std::int64_t t = 0; t < position.rows; ++t)
    for (std::int64_t j = 0; j < position.cols; ++j) {
      const std::int64_t r = position.row(t)[j];
      d_weight.row(t)[j] = 0;
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        d_rows.row(r)[c] = weight.row(t)[j] * d_out.row(t)[c];
        d_weight.row(t)[j] += rows.row(r)[c] * d_out.row(t)[c];
      }
    }
}

inline void sum_rows(Matrix<const double> rows, Matrix<const std::int32_t> position, Matrix<double> out,
                     bool accumulate) {
  for (std::int64_t t = 0; t < out.rows; ++t)
    for (std::int64_t c = 0; c < out.cols; ++c) {
      double sum = accumulate ? out.row(t)[c] : 0;
      for (std::int64_t j = 0; j < position.cols; ++j) sum += rows.row(position.row(t)[j])[c];
      out.row(t)[c] = sum;
    }
}

}  // namespace spillway::device::ops::reference
