#pragma once
// The router as the formulas read, in double; arguments as in router.hpp. The backward pass goes through the whole
// softmax, unlike the operator's.
#include <cmath>
#include <vector>

#include "device/ops/router.hpp"

namespace spillway::device::ops::reference {

inline void router_forward(Matrix<const double> u, Matrix<const double> w, Matrix<const std::int32_t> choices,
                           Matrix<double> state) {
  for (std::int64_t t = 0; t < u.rows; ++t) {
    double* p = state.row(t);
    double* weight = state.row(u.rows + t);
    double total = 0, chosen = 0;
    for (std::int64_t e = 0; e < w.cols; ++e) {
      double logit = 0;
      for (std::int64_t i = 0; i < u.cols; ++i) logit += u.row(t)[i] * w.row(i)[e];
      total += p[e] = std::exp(logit);
      weight[e] = 0;
    }
    for (std::int64_t e = 0; e < w.cols; ++e) p[e] /= total;
    for (std::int64_t j = 0; j < choices.cols; ++j) chosen += p[choices.row(t)[j]];
    for (std::int64_t j = 0; j < choices.cols; ++j) weight[choices.row(t)[j]] = p[choices.row(t)[j]] / chosen;
  }
}

/// Gradient of the logits [T, E] from that of the chosen weights.
inline void router_logit_gradient(Matrix<const std::int32_t> choices, Matrix<const double> state,
                                  Matrix<const double> d_weights, Matrix<double> d_logits) {
  for (std::int64_t t = 0; t < choices.rows; ++t) {
    const double* p = state.row(t);
    const double* weight = state.row(choices.rows + t);
    double chosen = 0, along_weights = 0, along_p = 0;
    for (std::int64_t j = 0; j < choices.cols; ++j) {
      chosen += p[choices.row(t)[j]];
      along_weights += weight[choices.row(t)[j]] * d_weights.row(t)[j];
    }
    std::vector<double> d_p(static_cast<std::size_t>(state.cols), 0.0);
    for (std::int64_t j = 0; j < choices.cols; ++j)
      d_p[static_cast<std::size_t>(choices.row(t)[j])] = (d_weights.row(t)[j] - along_weights) / chosen;
    for (std::size_t e = 0; e < d_p.size(); ++e) along_p += p[e] * d_p[e];
    for (std::size_t e = 0; e < d_p.size(); ++e) d_logits.row(t)[e] = p[e] * (d_p[e] - along_p);
  }
}

inline void router_backward(Matrix<const double> u, Matrix<const double> w, Matrix<const std::int32_t> choices,
                            Matrix<const double> state, Matrix<const double> d_weights, Matrix<double> d_logits,
                            Matrix<double> d_u, Matrix<double> d_w, bool accumulate_d_u) {
  router_logit_gradient(choices, state, d_weights, d_logits);
  for (std::int64_t t = 0; t < u.rows; ++t)
    for (std::int64_t i = 0; i < u.cols; ++i) {
      double d = accumulate_d_u ? d_u.row(t)[i] : 0;
      for (std::int64_t e = 0; e < w.cols; ++e) {
        d += d_logits.row(t)[e] * w.row(i)[e];
        d_w.row(i)[e] += u.row(t)[i] * d_logits.row(t)[e];
      }
      d_u.row(t)[i] = d;
    }
}

}  // namespace spillway::device::ops::reference
