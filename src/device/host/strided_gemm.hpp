#pragma once
// The library product behind gemm.hpp on blocks of larger matrices. Private to the host backend and its operators: it
// charges nothing, the operator does.
#include <cstdint>

#include "device/gemm.hpp"

namespace spillway::device {

/// Element (i, j) at data[i * stride + j]; stride >= cols.
template <class T>
struct StridedMatrix {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0, stride = 0;
};

/// c = op(a) op(b) + beta c; beta is 0 or 1. Any extent may be 0. May be called from several threads at once.
void strided_gemm(StridedMatrix<const float> a, Transpose transpose_a, StridedMatrix<const float> b,
                  Transpose transpose_b, float beta, StridedMatrix<float> c);

}  // namespace spillway::device
