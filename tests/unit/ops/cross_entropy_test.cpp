#include "device/ops/cross_entropy.hpp"

#include <numeric>

#include "device/ops/cross_entropy_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

struct LossExtents {
  std::int64_t rows, cols;
};
class Loss : public ::testing::TestWithParam<LossExtents> {
 protected:
  static Operand<std::int32_t> labels_below(std::int64_t rows, std::int64_t cols) {
    Operand<std::int32_t> label(rows, 1);
    for (std::int64_t i = 0; i < rows; ++i) label[i] = static_cast<std::int32_t>((i * 7 + 2) % cols);
    return label;
  }
  const std::int64_t rows = GetParam().rows, cols = GetParam().cols;
  const Operand<float> x = random_operand(rows, cols, 1);
  const Operand<std::int32_t> labels = labels_below(rows, cols);
  const float scale = 0.125f;
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Extents, Loss,
                         ::testing::Values(LossExtents{0, 3}, LossExtents{1, 1}, LossExtents{3, 2}, LossExtents{70, 33},
                                           LossExtents{130, 257}));

TEST_P(Loss, CrossEntropyAndItsGradientAgreeWithReference) {
  Operand<float> logits(x);
  Operand<double> expected(x);
  const double loss = cross_entropy(stream, logits, labels.data(), scale);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (rows + 2 * rows * cols))}));
  const double exact = reference::cross_entropy(expected, labels.data(), scale);
  EXPECT_NEAR(loss, exact, 1e-6 * (1 + exact));
  expect_close(logits, expected, 1e-6);
}

/// Columns [first, first + cols) of x.
Operand<float> columns(const Operand<float>& x, std::int64_t first, std::int64_t cols) {
  Operand<float> part(x.rows(), cols);
  for (std::int64_t i = 0; i < part.size(); ++i) part[i] = x[i / cols * x.cols() + first + i % cols];
  return part;
}

TEST_P(Loss, CrossEntropyOverADividedVocabularyAgreesWithReference) {
  for (const std::int64_t parts : {1, 3}) {
    if (cols % parts != 0) continue;
    const std::int64_t width = cols / parts;
    Operand<float> terms(parts * rows, 3);
    std::vector<Operand<float>> logits;
    const auto part = [&](std::int64_t p) { return VocabularyPart{labels.data(), p * width, p}; };
    for (std::int64_t p = 0; p < parts; ++p) {
      logits.push_back(columns(x, p * width, width));
      vocabulary_terms(stream, logits.back(), part(p), terms.view().slice(p * rows, rows));
      EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (rows + 2 * rows * width + 3 * rows))}));
    }
    Operand<double> expected(x);
    const double exact = reference::cross_entropy(expected, labels.data(), scale);
    for (std::int64_t p = 0; p < parts; ++p) {
      std::vector<double> losses(static_cast<std::size_t>(rows));
      vocabulary_cross_entropy(stream, logits[static_cast<std::size_t>(p)], part(p), terms, scale, losses.data());
      EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (rows + 2 * rows * width + 3 * parts * rows))}));
      EXPECT_NEAR(std::accumulate(losses.begin(), losses.end(), 0.0), exact, 1e-6 * (1 + exact));
      expect_close(logits[static_cast<std::size_t>(p)],
                   Operand<double>(columns(Operand<float>(expected), p * width, width)), 1e-6);
    }
  }
}

TEST_P(Loss, CrossEntropyGradientOfARowSumsToZero) {
  Operand<float> logits(x);
  cross_entropy(stream, logits, labels.data(), scale);
  for (std::int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < cols; ++j) sum += logits.view().row(i)[j];
    EXPECT_NEAR(sum, 0, 1e-6);
  }
}

TEST_P(Loss, CrossEntropyGivesTheSameBitsAtAnotherAddress) {
  Operand<float> here(x), there(x, 5);
  EXPECT_EQ(cross_entropy(stream, here, labels.data(), scale), cross_entropy(stream, there, labels.data(), scale));
  expect_same_bits(here, there);
}

TEST_P(Loss, SquareLossAndItsGradientAgreeWithReference) {
  Operand<float> d_x(rows, cols);
  Operand<double> expected(rows, cols);
  const double loss = square_loss(stream, x, scale), exact = reference::square_loss(Operand<double>(x), scale);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * rows * cols)}));
  EXPECT_NEAR(loss, exact, 1e-6 * (1 + exact));
  EXPECT_EQ(loss, square_loss(stream, Operand<float>(x, 7), scale));
  stream.take();
  square_loss_backward(stream, x, scale, d_x);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 2 * rows * cols)}));
  reference::square_loss_backward(Operand<double>(x), scale, expected);
  expect_close(d_x, expected, 1e-7);
}

TEST(LossExtremes, HugeLogitsGiveAFiniteLossAndGradient) {
  Operand<float> logits(2, 2);
  logits[0] = 1e4f, logits[1] = -1e4f, logits[2] = -1e4f, logits[3] = -1.5e4f;
  const std::int32_t labels[] = {1, 0};
  Stream stream;
  EXPECT_NEAR(cross_entropy(stream, logits, labels, 0.5f), 1e4, 1e-3);
  EXPECT_EQ(logits[0], 0.5f);
  EXPECT_EQ(logits[1], -0.5f);
  EXPECT_EQ(logits[2], 0.0f);
  EXPECT_EQ(logits[3], 0.0f);
}

TEST(LossReference, EveryGradientIsThatOfItsLoss) {
  Operand<double> x(random_operand(3, 5, 1));
  const std::int32_t labels[] = {4, 0, 2};
  Operand<double> d_logits(x), d_square(3, 5);
  reference::cross_entropy(d_logits, labels, 0.3);
  expect_gradient(x, d_logits, [&] {
    Operand<double> logits(x);
    return reference::cross_entropy(logits, labels, 0.3);
  });
  reference::square_loss_backward(x, 0.3, d_square);
  expect_gradient(x, d_square, [&] { return reference::square_loss(x, 0.3); });
}

}  // namespace
}  // namespace spillway::device::ops
