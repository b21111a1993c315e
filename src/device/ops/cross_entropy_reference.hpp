#pragma once
// The losses as the formulas read, in double; arguments as in cross_entropy.hpp.
#include <algorithm>
#include <cmath>

#include "device/ops/cross_entropy.hpp"

namespace spillway::device::ops::reference {

inline double cross_entropy(Matrix<double> logits, const std::int32_t* labels, double scale) {
  double loss = 0;
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    double* row = logits.row(i);
    const double largest = *std::max_element(row, row + logits.cols);
    double sum = 0;
    for (std::int64_t j = 0; j < logits.cols; ++j) sum += std::exp(row[j] - largest);
    loss -= row[labels[i]] - largest - std::log(sum);
    for (std::int64_t j = 0; j < logits.cols; ++j)
      row[j] = scale * (std::exp(row[j] - largest) / sum - (j == labels[i] ? 1.0 : 0.0));
  }
  return scale * loss;
}

inline double square_loss(Matrix<const double> x, double scale) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) sum += x.data[i] * x.data[i];
  return scale / 2 * sum;
}

inline void square_loss_backward(Matrix<const double> x, double scale, Matrix<double> d_x) {
  for (std::int64_t i = 0; i < x.size(); ++i) d_x.data[i] = scale * x.data[i];
}

}  // namespace spillway::device::ops::reference
