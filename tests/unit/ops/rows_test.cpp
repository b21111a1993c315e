#include "device/ops/rows.hpp"

#include <algorithm>
#include <numeric>

#include "device/ops/rows_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

struct RowExtents {
  std::int64_t tokens, slots, hidden;
};
class Rows : public ::testing::TestWithParam<RowExtents> {
 protected:
  /// A permutation of the rows of all slots: position[t, j] is the row of slot j of token t.
  static Operand<std::int32_t> permutation(std::int64_t tokens, std::int64_t slots) {
    Operand<std::int32_t> all = random_choices(1, tokens * slots, tokens * slots, 9), position(tokens, slots);
    for (std::int64_t i = 0; i < all.size(); ++i) position[i] = all[i];
    return position;
  }
  const std::int64_t tokens = GetParam().tokens, slots = GetParam().slots, hidden = GetParam().hidden,
                     count = tokens * slots;
  const Operand<float> rows = random_operand(count, hidden, 1), weight = random_operand(tokens, slots, 2);
  const Operand<float> d_out = random_operand(tokens, hidden, 3);
  const Operand<std::int32_t> position = permutation(tokens, slots);
  Operand<float> out = random_operand(tokens, hidden, 4);
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Extents, Rows,
                         ::testing::Values(RowExtents{0, 2, 3}, RowExtents{3, 0, 5}, RowExtents{1, 1, 1},
                                           RowExtents{5, 2, 3}, RowExtents{7, 3, 70}, RowExtents{9, 4, 64},
                                           RowExtents{6, 6, 33}, RowExtents{20, 9, 17}));

TEST_P(Rows, GatherAgreesWithReferenceAndScatterUndoesIt) {
  Operand<float> moved(count, hidden), back(count, hidden);
  Operand<double> expected(count, hidden);
  gather_rows(stream, rows, position.data(), moved);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (2 * count * hidden + count))}));
  reference::gather_rows(Operand<double>(rows), position.data(), expected);
  expect_close(moved, expected, 0);
  scatter_rows(stream, moved, position.data(), back);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (2 * count * hidden + count))}));
  expect_same_bits(back, rows);
}

TEST_P(Rows, GatherRepeatsRows) {
  Operand<std::int32_t> token(count, 1);
  for (std::int64_t i = 0; i < count; ++i) token[i] = static_cast<std::int32_t>(position[i] / slots);
  Operand<float> copies(count, hidden);
  gather_rows(stream, d_out, token.data(), copies);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (std::min(tokens, count) * hidden + count * hidden + count))}));
  for (std::int64_t i = 0; i < copies.size(); ++i) ASSERT_EQ(copies[i], d_out[token[i / hidden] * hidden + i % hidden]);
}

TEST_P(Rows, ValuesFollowTheirRows) {
  Operand<float> per_row(count, 1), back(tokens, slots);
  scatter_values(stream, weight, position.data(), per_row);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 3 * count)}));
  for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(per_row[position[i]], weight[i]);
  gather_values(stream, per_row, position.data(), back);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 3 * count)}));
  expect_same_bits(back, weight);
}

TEST_P(Rows, SumsAddSlotsFromLeftToRight) {
  for (const bool accumulate : {false, true}) {
    Operand<float> actual(out), expected(out);
    sum_rows(stream, rows, position, actual, accumulate);
    EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (count * hidden + count + tokens * hidden * (accumulate ? 2 : 1)))}));
    for (std::int64_t i = 0; i < expected.size(); ++i) {
      const std::int64_t t = i / hidden, c = i % hidden;
      if (!accumulate) expected[i] = slots == 0 ? 0 : rows[position[t * slots] * hidden + c];
      for (std::int64_t j = accumulate ? 0 : 1; j < slots; ++j)
        expected[i] += rows[position[t * slots + j] * hidden + c];
    }
    expect_same_bits(actual, expected);
    Operand<double> exact(out);
    reference::sum_rows(Operand<double>(rows), position, exact, accumulate);
    expect_close(actual, exact, 2e-6);
  }
}

TEST_P(Rows, WeightedSumAgreesWithReference) {
  for (const bool accumulate : {false, true}) {
    Operand<float> actual(out), again(out, 3);
    Operand<double> expected(out);
    weighted_sum_rows(stream, rows, position, weight, actual, accumulate);
    EXPECT_EQ(stream.take(),
              (Work{{}, Bytes(4 * (count * hidden + 2 * count + tokens * hidden * (accumulate ? 2 : 1)))}));
    Stream other;
    weighted_sum_rows(other, Operand<float>(rows, 5), position, weight, again, accumulate);
    expect_same_bits(actual, again);
    reference::weighted_sum_rows(Operand<double>(rows), position, Operand<double>(weight), expected, accumulate);
    expect_close(actual, expected, 5e-6);
  }
}

TEST_P(Rows, WeightedSumBackwardAgreesWithReference) {
  Operand<float> d_rows(count, hidden, -7.0f), d_weight(tokens, slots, -7.0f);
  Operand<double> expected_rows(count, hidden), expected_weight(tokens, slots);
  weighted_sum_rows_backward(stream, rows, position, weight, d_out, d_rows, d_weight);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (2 * count * hidden + 3 * count + tokens * hidden))}));
  reference::weighted_sum_rows_backward(Operand<double>(rows), position, Operand<double>(weight),
                                        Operand<double>(d_out), expected_rows, expected_weight);
  expect_close(d_rows, expected_rows, 1e-6);
  expect_close(d_weight, expected_weight, 1e-5);
}

TEST(RowsIdentity, SumOfOneSlotAfterGatherReturnsTheTokens) {
  const Operand<float> tokens = random_operand(11, 19, 1);
  Operand<std::int32_t> identity(11, 1);
  std::iota(identity.data(), identity.data() + 11, 0);
  Operand<float> gathered(11, 19), sum(11, 19);
  Stream stream;
  gather_rows(stream, tokens, identity.data(), gathered);
  sum_rows(stream, gathered, identity, sum, false);
  expect_same_bits(sum, tokens);
}

TEST(RowsReference, WeightedSumBackwardIsTheGradientOfForward) {
  Operand<double> rows(random_operand(6, 3, 1)), weight(random_operand(3, 2, 2));
  const Operand<double> d_out(random_operand(3, 3, 3));
  Operand<std::int32_t> position(3, 2);
  for (int i = 0; i < 6; ++i) position[i] = (i * 5 + 1) % 6;
  Operand<double> d_rows(6, 3), d_weight(3, 2);
  reference::weighted_sum_rows_backward(rows, position, weight, d_out, d_rows, d_weight);
  const auto loss = [&] {
    Operand<double> out(3, 3);
    reference::weighted_sum_rows(rows, position, weight, out, false);
    return inner(out, d_out);
  };
  expect_gradient(rows, d_rows, loss);
  expect_gradient(weight, d_weight, loss);
}

}  // namespace
}  // namespace spillway::device::ops
