#include "device/ops/elementwise.hpp"

#include <bit>
#include <cstring>

#include "device/ops/blocks.hpp"

namespace spillway::device::ops {

void accumulate(Stream& stream, Matrix<const float> x, Matrix<float> sum) {
  expect_shape("accumulate: sum", sum, x.rows, x.cols);
  stream.charge({{}, x.bytes() + sum.bytes() * 2});
  parallel_blocks(
      stream, "accumulate", x.size(), element_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) sum.data[i] += x.data[i];
      });
}

void fill(Stream& stream, float value, Matrix<float> x) {
  stream.charge({{}, x.bytes()});
  parallel_blocks(
      stream, "fill", x.size(), element_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) x.data[i] = value;
      });
}

void copy(Stream& stream, Matrix<const float> src, Matrix<float> dst) {
  expect_shape("copy: dst", dst, src.rows, src.cols);
  stream.charge({{}, src.bytes() + dst.bytes()});
  parallel_blocks(
      stream, "copy", src.size(), element_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
        std::memcpy(dst.data + begin, src.data + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
      });
}

std::uint64_t checksum(Matrix<const float> x, std::uint64_t first_index) {
  std::uint64_t sum = 0;
  const std::int64_t n = x.size();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t weight = 2 * (first_index + static_cast<std::uint64_t>(i)) + 1;
    sum += weight * std::bit_cast<std::uint32_t>(x.data[i]);
  }
  return sum;
}

bool all_finite(Matrix<const float> x) {
  constexpr std::uint32_t exponent = 0x7f800000u;  // all ones in infinities and NaNs only
  std::uint32_t largest = 0;
  const std::int64_t n = x.size();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t e = std::bit_cast<std::uint32_t>(x.data[i]) & exponent;
    largest = e > largest ? e : largest;
  }
  return largest != exponent;
}

}  // namespace spillway::device::ops
