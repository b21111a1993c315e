#include "device/ops/rows.hpp"

#include <algorithm>
#include <cstring>

#include "device/ops/blocks.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

Bytes index_bytes(std::int64_t n) { return Bytes(n * static_cast<std::int64_t>(sizeof(std::int32_t))); }
Bytes value_bytes(std::int64_t n) { return Bytes(n * static_cast<std::int64_t>(sizeof(float))); }

/// The weight of every slot of sum_rows.
struct One {
  KOKKOS_INLINE_FUNCTION constexpr float operator()(std::int64_t, std::int64_t) const { return 1.0f; }
};

/// The sum of one token's slots, from left to right; four rows are read side by side.
template <class Weight>
struct SlotSum {
  Matrix<const float> rows;
  Matrix<const std::int32_t> position;
  Weight weight;
  Matrix<float> out;
  bool accumulate;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t t) const {
    const std::int64_t slots = position.cols;
    std::int64_t j = 0;
    bool overwrite = !accumulate;
    for (; j + 4 <= slots; j += 4, overwrite = false) overwrite ? four<true>(t, j) : four<false>(t, j);
    for (; j < slots; ++j, overwrite = false) overwrite ? one<true>(t, j) : one<false>(t, j);
    if (overwrite)
      for (std::int64_t c = 0; c < out.cols; ++c) out.row(t)[c] = 0;
  }

  template <bool overwrite>
  KOKKOS_INLINE_FUNCTION void one(std::int64_t t, std::int64_t j) const {
    const float* row = rows.row(position.row(t)[j]);
    const float factor = weight(t, j);
    float* sum = out.row(t);
#pragma omp simd
    for (std::int64_t c = 0; c < out.cols; ++c) sum[c] = overwrite ? factor * row[c] : sum[c] + factor * row[c];
  }

  template <bool overwrite>
  KOKKOS_INLINE_FUNCTION void four(std::int64_t t, std::int64_t j) const {
    const std::int32_t* at = position.row(t) + j;
    const float *a = rows.row(at[0]), *b = rows.row(at[1]), *c = rows.row(at[2]), *d = rows.row(at[3]);
    const float wa = weight(t, j), wb = weight(t, j + 1), wc = weight(t, j + 2), wd = weight(t, j + 3);
    float* sum = out.row(t);
#pragma omp simd
    for (std::int64_t i = 0; i < out.cols; ++i) {
      const float first = overwrite ? wa * a[i] : sum[i] + wa * a[i];
      sum[i] = ((first + wb * b[i]) + wc * c[i]) + wd * d[i];
    }
  }
};

}  // namespace

void gather_rows(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst) {
  expect_shape("gather_rows: src", src, src.rows, dst.cols);
  const auto row_bytes = static_cast<std::size_t>(value_bytes(src.cols).value);
  const Work work{{}, index_bytes(dst.rows) + std::min(src.bytes(), dst.bytes()) + dst.bytes()};
  stream.parallel_for(
      "gather_rows", dst.rows, work,
      KOKKOS_LAMBDA(std::int64_t i) { std::memcpy(dst.row(i), src.row(index[i]), row_bytes); });
}

void scatter_rows(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst) {
  expect_shape("scatter_rows: dst", dst, dst.rows, src.cols);
  const auto row_bytes = static_cast<std::size_t>(value_bytes(src.cols).value);
  const Work work{{}, index_bytes(src.rows) + src.bytes() + src.bytes()};
  stream.parallel_for(
      "scatter_rows", src.rows, work,
      KOKKOS_LAMBDA(std::int64_t i) { std::memcpy(dst.row(index[i]), src.row(i), row_bytes); });
}

void gather_values(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst) {
  const Work work{{}, index_bytes(dst.size()) + value_bytes(dst.size()) + dst.bytes()};
  stream.parallel_for(
      "gather_values", dst.size(), work, KOKKOS_LAMBDA(std::int64_t i) { dst.data[i] = src.data[index[i]]; });
}

void scatter_values(Stream& stream, Matrix<const float> src, const std::int32_t* index, Matrix<float> dst) {
  const Work work{{}, index_bytes(src.size()) + src.bytes() + value_bytes(src.size())};
  stream.parallel_for(
      "scatter_values", src.size(), work, KOKKOS_LAMBDA(std::int64_t i) { dst.data[index[i]] = src.data[i]; });
}

void sum_rows(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position, Matrix<float> out,
              bool accumulate) {
  expect_shape("sum_rows: out", out, position.rows, rows.cols);
  const Work work{{}, rows.bytes() + position.bytes() + out.bytes() * (accumulate ? 2 : 1)};
  stream.parallel_for("sum_rows", out.rows, work, SlotSum<One>{rows, position, One{}, out, accumulate});
}

void weighted_sum_rows(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position,
                       Matrix<const float> weight, Matrix<float> out, bool accumulate) {
  expect_shape("weighted_sum_rows: out", out, position.rows, rows.cols);
  expect_shape("weighted_sum_rows: weight", weight, position.rows, position.cols);
  const auto of_slot = KOKKOS_LAMBDA(std::int64_t t, std::int64_t j) { return weight.row(t)[j]; };
  const Work work{{}, rows.bytes() + position.bytes() + weight.bytes() + out.bytes() * (accumulate ? 2 : 1)};
  stream.parallel_for("weighted_sum_rows", out.rows, work,
                      SlotSum<decltype(of_slot)>{rows, position, of_slot, out, accumulate});
}

void weighted_sum_rows_backward(Stream& stream, Matrix<const float> rows, Matrix<const std::int32_t> position,
                                Matrix<const float> weight, Matrix<const float> d_out, Matrix<float> d_rows,
                                Matrix<float> d_weight) {
  expect_shape("weighted_sum_rows: d_out", d_out, position.rows, rows.cols);
  expect_shape("weighted_sum_rows: weight", weight, position.rows, position.cols);
  expect_shape("weighted_sum_rows: d_weight", d_weight, position.rows, position.cols);
  expect_shape("weighted_sum_rows: d_rows", d_rows, rows.rows, rows.cols);
  const Work work{{},
                  rows.bytes() + position.bytes() + weight.bytes() + d_out.bytes() + d_rows.bytes() + d_weight.bytes()};
  stream.parallel_for(
      "weighted_sum_rows_backward", position.rows, work, KOKKOS_LAMBDA(std::int64_t t) {
        const float* d = d_out.row(t);
        for (std::int64_t j = 0; j < position.cols; ++j) {
          const float* row = rows.row(position.row(t)[j]);
          float* d_row = d_rows.row(position.row(t)[j]);
          const float factor = weight.row(t)[j];
          d_weight.row(t)[j] = lane_sum(rows.cols, [=](std::int64_t c) {
            d_row[c] = factor * d[c];
            return row[c] * d[c];
          });
        }
      });
}

}  // namespace spillway::device::ops
