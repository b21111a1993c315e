#include "device/ops/cross_entropy.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/ops/blocks.hpp"
#include "device/ops/exponential.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

/// -log softmax(row)[label]; the row becomes its gradient times scale.
KOKKOS_INLINE_FUNCTION double row_loss(float* row, std::int64_t n, std::int32_t label, float scale) {
  const float largest = lane_max(n, row[0], [row](std::int64_t j) { return row[j]; });
  const float at_label = row[label] - largest;
  const float sum = lane_sum(n, [=](std::int64_t j) { return row[j] = exponential(row[j] - largest); });
  const float factor = scale / sum;
#pragma omp simd
  for (std::int64_t j = 0; j < n; ++j) row[j] *= factor;
  row[label] -= scale;
  return std::log(static_cast<double>(sum)) - static_cast<double>(at_label);
}

/// Sum of loss(row) over [0, rows), evaluated in parallel, added in row order.
template <class RowLoss>
double ordered_sum(Stream& stream, const char* name, std::int64_t rows, const RowLoss& loss) {
  std::array<double, row_chunk> losses;
  double total = 0;
  for (std::int64_t first = 0; first < rows; first += row_chunk) {
    const std::int64_t count = std::min(row_chunk, rows - first);
    double* values = losses.data();
    stream.parallel_for(
        name, count, Work{}, KOKKOS_LAMBDA(std::int64_t r) { values[r] = loss(first + r); });
    for (std::int64_t r = 0; r < count; ++r) total += losses[static_cast<std::size_t>(r)];
  }
  return total;
}

}  // namespace

double cross_entropy(Stream& stream, Matrix<float> logits, const std::int32_t* labels, float scale) {
  const Bytes label_bytes(logits.rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  stream.charge({{}, label_bytes + logits.bytes() * 2});
  const double total = ordered_sum(
      stream, "cross_entropy", logits.rows,
      KOKKOS_LAMBDA(std::int64_t i) { return row_loss(logits.row(i), logits.cols, labels[i], scale); });
  return total * static_cast<double>(scale);
}

void vocabulary_terms(Stream& stream, Matrix<float> logits, const VocabularyPart& part, Matrix<float> terms) {
  expect_shape("vocabulary_terms: terms", terms, logits.rows, 3);
  const Bytes label_bytes(logits.rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  const Work work{{}, label_bytes + logits.bytes() * 2 + terms.bytes()};
  stream.parallel_for(
      "vocabulary_terms", logits.rows, work, KOKKOS_LAMBDA(std::int64_t i) {
        float* row = logits.row(i);
        float* term = terms.row(i);
        const std::int64_t label = part.labels[i] - part.first_id;
        const float largest = lane_max(logits.cols, row[0], [row](std::int64_t j) { return row[j]; });
        term[0] = largest;
        term[2] = label >= 0 && label < logits.cols ? row[label] : 0.0f;
        term[1] = lane_sum(logits.cols, [=](std::int64_t j) { return row[j] = exponential(row[j] - largest); });
      });
}

void vocabulary_cross_entropy(Stream& stream, Matrix<float> exponentials, const VocabularyPart& part,
                              Matrix<const float> terms, float scale, double* losses) {
  const std::int64_t rows = exponentials.rows, parts = rows == 0 ? 1 : terms.rows / rows;
  expect_shape("vocabulary_cross_entropy: terms", terms, parts * rows, 3);
  const Bytes label_bytes(rows * static_cast<std::int64_t>(sizeof(std::int32_t)));
  const Work work{{}, label_bytes + exponentials.bytes() * 2 + terms.bytes()};
  stream.parallel_for(
      "vocabulary_cross_entropy", rows, work, KOKKOS_LAMBDA(std::int64_t i) {
        float largest = terms.row(i)[0], sum = 0, at_label = 0;
        for (std::int64_t p = 1; p < parts; ++p)
          largest = largest < terms.row(p * rows + i)[0] ? terms.row(p * rows + i)[0] : largest;
        for (std::int64_t p = 0; p < parts; ++p) {
          const float* term = terms.row(p * rows + i);
          sum += term[1] * exponential(term[0] - largest);
          at_label += term[2];
        }
        float* row = exponentials.row(i);
        const float factor = scale * exponential(terms.row(part.part * rows + i)[0] - largest) / sum;
#pragma omp simd
        for (std::int64_t j = 0; j < exponentials.cols; ++j) row[j] *= factor;
        const std::int64_t label = part.labels[i] - part.first_id;
        if (label >= 0 && label < exponentials.cols) row[label] -= scale;
        losses[i] = scale * (std::log(static_cast<double>(sum)) - static_cast<double>(at_label - largest));
      });
}

double square_loss(Stream& stream, Matrix<const float> x, float scale) {
  stream.charge({{}, x.bytes()});
  const double total = ordered_sum(
      stream, "square_loss", x.rows, KOKKOS_LAMBDA(std::int64_t i) {
        const float* row = x.row(i);
        return static_cast<double>(lane_sum(x.cols, [row](std::int64_t j) { return row[j] * row[j]; }));
      });
  return total * 0.5 * static_cast<double>(scale);
}

void square_loss_backward(Stream& stream, Matrix<const float> x, float scale, Matrix<float> d_x) {
  expect_shape("square_loss: d_x", d_x, x.rows, x.cols);
  stream.charge({{}, x.bytes() + d_x.bytes()});
  parallel_blocks(
      stream, "square_loss_backward", x.size(), element_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) d_x.data[i] = scale * x.data[i];
      });
}

}  // namespace spillway::device::ops
