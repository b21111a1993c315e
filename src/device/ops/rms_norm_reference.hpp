#pragma once
// RMSNorm as the formula reads, in double; arguments as in rms_norm.hpp.
#include <cmath>

#include "device/ops/rms_norm.hpp"

namespace spillway::device::ops::reference {

inline double inverse_rms(Matrix<const double> x, std::int64_t i) {
  double squares = 0;
  for (std::int64_t j = 0; j < x.cols; ++j) squares += x.row(i)[j] * x.row(i)[j];
  return 1.0 / std::sqrt(squares / static_cast<double>(x.cols) + rms_norm_epsilon);
}

inline void rms_norm_forward(Matrix<const double> x, Matrix<const double> gain, Matrix<double> out) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const double inverse = inverse_rms(x, i);
    for (std::int64_t j = 0; j < x.cols; ++j) out.row(i)[j] = x.row(i)[j] * inverse * gain.data[j];
  }
}

inline void rms_norm_backward(Matrix<const double> x, Matrix<const double> gain, Matrix<const double> d_out,
                              Matrix<double> d_x, Matrix<double> d_gain, bool accumulate_d_x) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const double inverse = inverse_rms(x, i);
    double dot = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) {
      dot += gain.data[j] * d_out.row(i)[j] * x.row(i)[j];
      d_gain.data[j] += d_out.row(i)[j] * x.row(i)[j] * inverse;
    }
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const double d = inverse * gain.data[j] * d_out.row(i)[j] -
                       x.row(i)[j] * inverse * inverse * inverse * dot / static_cast<double>(x.cols);
      d_x.row(i)[j] = accumulate_d_x ? d_x.row(i)[j] + d : d;
    }
  }
}

}  // namespace spillway::device::ops::reference
