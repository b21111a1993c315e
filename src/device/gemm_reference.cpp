#include "device/gemm_reference.hpp"

namespace spillway::device::reference {

void gemm(Matrix<const double> a, Transpose transpose_a, Matrix<const double> b, Transpose transpose_b, double beta,
          Matrix<double> c) {
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const std::int64_t k = ta ? a.rows : a.cols;
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.cols; ++j) {
      double sum = 0.0;
      for (std::int64_t l = 0; l < k; ++l) sum += (ta ? a.row(l)[i] : a.row(i)[l]) * (tb ? b.row(j)[l] : b.row(l)[j]);
      c.row(i)[j] = sum + (beta == 0.0 ? 0.0 : c.row(i)[j]);
    }
}

void grouped_gemm(Matrix<const double> a, RowOffsets offsets, Matrix<const double> w, Transpose transpose_w,
                  Matrix<double> c) {
  const std::int64_t groups = std::ssize(offsets) - 1;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets[g], rows = offsets[g + 1] - first, k = w.rows / groups;
    gemm(a.slice(first, rows), Transpose::no, w.slice(g * k, k), transpose_w, 0.0, c.slice(first, rows));
  }
}

void grouped_gemm_weight_gradient(Matrix<const double> a, Matrix<const double> b, RowOffsets offsets,
                                  Matrix<double> dw) {
  const std::int64_t groups = std::ssize(offsets) - 1;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t first = offsets[g], rows = offsets[g + 1] - first, k = dw.rows / groups;
    gemm(a.slice(first, rows), Transpose::yes, b.slice(first, rows), Transpose::no, 1.0, dw.slice(g * k, k));
  }
}

}  // namespace spillway::device::reference
