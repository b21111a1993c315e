#include "device/ops/quantize.hpp"

#include <cmath>

#include "device/ops/blocks.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

constexpr float least_scale = 0x1p-126f;

}  // namespace

void quantize(Stream& stream, Matrix<const float> x, std::uint8_t* values, float* scales) {
  stream.charge({{}, x.bytes() + quantized_bytes(x.size())});
  parallel_blocks(
      stream, "quantize", x.size(), fp8_group, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
        const std::int64_t n = end - begin;
        const float* group = x.data + begin;
        std::uint8_t* codes = values + begin;
        const float largest = lane_max(n, 0.0f, [=](std::int64_t i) { return std::abs(group[i]); });
        const float share = largest / e4m3_largest;
        const float scale = largest == 0.0f ? 0.0f : (share < least_scale ? least_scale : share);
        const float divisor = largest == 0.0f ? 1.0f : scale;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) codes[i] = to_e4m3(group[i] / divisor);
        scales[begin / fp8_group] = scale;
      });
}

void dequantize(Stream& stream, const std::uint8_t* values, const float* scales, Matrix<float> x) {
  stream.charge({{}, x.bytes() + quantized_bytes(x.size())});
  parallel_blocks(
      stream, "dequantize", x.size(), fp8_group, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
        const float scale = scales[begin / fp8_group];
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) x.data[i] = from_e4m3(values[i]) * scale;
      });
}

}  // namespace spillway::device::ops
