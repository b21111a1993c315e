#pragma once
// Bytes of a tensor stored as FP8.
#include <cstdint>

#include "base/units.hpp"

namespace spillway {

/// Consecutive values of a row-major tensor that share an fp32 scale.
inline constexpr std::int64_t fp8_group = 128;

/// A byte per value and four per group.
constexpr Bytes quantized_bytes(std::int64_t elements) {
  return Bytes(elements + 4 * ((elements + fp8_group - 1) / fp8_group));
}

}  // namespace spillway
