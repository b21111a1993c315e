#pragma once
// exp(x) that a compiler vectorises without fast-math: straight-line code, no call, no branch.
#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>

namespace spillway::device::ops {

/// e^x, relative error below 2e-7 for x in [-87.3, 88.3]; 0 below -87.7, +inf above 88.4, NaN for NaN.
/// x = n ln 2 + r with |r| <= ln(2)/2; the polynomial in r is that of Cephes' expf (Moshier), ln 2 split in two so that
/// n times its upper part is exact.
KOKKOS_INLINE_FUNCTION float exponential(float x) {
  constexpr float round_to_integer = 0x1.8p23f;  // adding it leaves n in the lowest bits of the sum
  x = x < -88.0f ? -88.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * 1.44269504f + round_to_integer;
  const float n = shifted - round_to_integer;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n with exponent bits 0 (zero) for n = -127 and 255 (infinity) for n = 128.
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) << 23) + (std::uint32_t{127} << 23);
  return p * std::bit_cast<float>(power);
}

/// 1 / (1 + e^-x).
KOKKOS_INLINE_FUNCTION float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

}  // namespace spillway::device::ops
