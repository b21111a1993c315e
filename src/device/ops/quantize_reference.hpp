#pragma once
// FP8 storage as the specification reads, in double; arguments as in quantize.hpp. Finite values only.
#include <algorithm>
#include <cmath>

#include "device/ops/quantize.hpp"

namespace spillway::device::ops::reference {

/// Value of a code; NaN for 0x7f and 0xff.
inline double from_e4m3(int code) {
  const int exponent = (code >> 3) & 15, mantissa = code & 7;
  const double sign = (code & 0x80) != 0 ? -1.0 : 1.0;
  if (exponent == 15 && mantissa == 7) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa / 8.0, -6);
  return sign * std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
}

/// The code of the nearest value of the sign of x, of two equally near ones the even code.
inline std::uint8_t to_e4m3(double x) {
  int nearest = 0;
  double least = std::abs(x);
  for (int code = 1; code <= 0x7e; ++code) {
    const double distance = std::abs(std::abs(x) - from_e4m3(code));
    if (distance > least || (distance == least && code % 2 == 1)) continue;
    nearest = code;
    least = distance;
  }
  return static_cast<std::uint8_t>(nearest | (std::signbit(x) ? 0x80 : 0));
}

inline void quantize(Matrix<const double> x, std::uint8_t* values, double* scales) {
  for (std::int64_t begin = 0; begin < x.size(); begin += fp8_group) {
    const std::int64_t end = std::min(begin + fp8_group, x.size());
    double largest = 0;
    for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x.data[i]));
    const double scale = largest == 0 ? 0 : std::max(largest / 448, std::ldexp(1, -126));
    for (std::int64_t i = begin; i < end; ++i) values[i] = to_e4m3(largest == 0 ? x.data[i] : x.data[i] / scale);
    scales[begin / fp8_group] = scale;
  }
}

inline void dequantize(const std::uint8_t* values, const double* scales, Matrix<double> x) {
  for (std::int64_t i = 0; i < x.size(); ++i) x.data[i] = from_e4m3(values[i]) * scales[i / fp8_group];
}

}  // namespace spillway::device::ops::reference
