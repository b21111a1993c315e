#pragma once
// Storing a tensor as FP8: E4M3 of the OCP 8-bit floating point specification (sign, 4 bits of exponent with bias 7,
// 3 of mantissa; largest value 448, least 2^-9, no infinities, NaN is S.1111.111) with an fp32 scale per group.
#include <Kokkos_Core.hpp>
#include <bit>
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway::device::ops {

inline constexpr float e4m3_largest = 448.0f;

/// Nearest E4M3 value, ties to the even code; beyond 448, infinities included, 448 with the sign of x. NaN for NaN.
/// No branch and no call, so that loops over it vectorise.
KOKKOS_INLINE_FUNCTION std::uint8_t to_e4m3(float x) {
  constexpr std::uint32_t infinity = 0x7f800000u, nan = 0x7fu, largest = 0x7eu, least_exponent = 127 - 6;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t beyond = std::bit_cast<std::uint32_t>(480.0f);
  const std::uint32_t capped = magnitude < beyond ? magnitude : beyond;
  // |x| = q 2^(e - 3) with the exponent e, at least -6. The last bit of a sum with 2^(e + 20) is worth 2^(e - 3): the
  // sum rounds q to an integer, 8 .. 16 for normal numbers, 0 .. 8 below.
  const std::uint32_t exponent = capped >> 23 < least_exponent ? least_exponent : capped >> 23;
  const std::uint32_t rounder = (exponent + 20u) << 23;
  const float sum = std::bit_cast<float>(capped) + std::bit_cast<float>(rounder);
  const std::uint32_t code = ((exponent - least_exponent) << 3) + (std::bit_cast<std::uint32_t>(sum) - rounder);
  const std::uint32_t number = code < largest ? code : largest;
  return static_cast<std::uint8_t>((magnitude > infinity ? nan : number) | ((bits >> 24) & 0x80u));
}

/// The value of a code, exactly.
KOKKOS_INLINE_FUNCTION float from_e4m3(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu, field = magnitude >> 3;
  const std::uint32_t leading = field != 0u;  // subnormal numbers: the exponent of field 1, without its leading bit
  const std::uint32_t exponent = field + 1u - leading, q = (magnitude & 7u) | (leading << 3);
  const float value =
      static_cast<float>(static_cast<std::int32_t>(q)) * std::bit_cast<float>((exponent + 127u - 7u - 3u) << 23);
  const std::uint32_t is_nan = (magnitude + 1u) >> 7, sign = (code & 0x80u) << 24;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | (is_nan * 0x7fc00000u) | sign);
}

/// Values [x.size()] and scales [ceil(x.size() / fp8_group)] of x, whose groups are fp8_group consecutive values in row
/// order, across rows; the last may be short. scale = largest |x| of the group / 448, but at least 2^-126 (so that it
/// is a normal number) unless the group is all zero: scale 0. Value = x / scale in E4M3.
/// A finite x in a finite group comes back within max(|x| / 16, scale / 1024) * (1 + 2^-20). NaN comes back as NaN and
/// leaves the rest of its group as it is; an infinity makes its whole group NaN, so that the check for finite values
/// finds it.
/// Charges no FLOPs; bytes of x and quantized_bytes(x.size()).
void quantize(Stream& stream, Matrix<const float> x, std::uint8_t* values, float* scales);

/// x = value * scale, element by element. Charges as quantize.
void dequantize(Stream& stream, const std::uint8_t* values, const float* scales, Matrix<float> x);

}  // namespace spillway::device::ops
