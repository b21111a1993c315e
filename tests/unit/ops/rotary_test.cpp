#include "device/ops/rotary.hpp"

#include "base/error.hpp"
#include "device/ops/rotary_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

class Rotary : public ::testing::TestWithParam<RotaryShape> {
 protected:
  const RotaryShape shape = GetParam();
  const std::int64_t rows = 2 * shape.sequence_length;
  const Operand<float> qkv = random_operand(rows, shape.qkv_size(), 1);
  RotaryTable table;
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Shapes, Rotary,
                         ::testing::Values(RotaryShape{1, 1, 1, 2}, RotaryShape{5, 3, 1, 6}, RotaryShape{7, 4, 2, 16},
                                           RotaryShape{300, 2, 2, 34}));

TEST_P(Rotary, AgreesWithReferenceAndLeavesValuesAlone) {
  Operand<float> forward(qkv), backward(qkv);
  Operand<double> expected_forward(qkv), expected_backward(qkv);
  rotary_forward(stream, table, shape, forward);
  rotary_backward(stream, table, shape, backward);
  reference::rotary_forward(shape, expected_forward);
  reference::rotary_backward(shape, expected_backward);
  expect_close(forward, expected_forward, 1e-6);
  expect_close(backward, expected_backward, 1e-6);
  const std::int64_t values = (shape.heads + shape.key_value_heads) * shape.head_dim;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = values; c < shape.qkv_size(); ++c)
      ASSERT_EQ(forward.view().row(r)[c], qkv.view().row(r)[c]) << "row " << r << " column " << c;
}

TEST_P(Rotary, BackwardInvertsForward) {
  Operand<float> turned(qkv);
  rotary_forward(stream, table, shape, turned);
  rotary_backward(stream, table, shape, turned);
  expect_close(turned, Operand<double>(qkv), 1e-6);
}

TEST_P(Rotary, SameBitsAtAnotherAddress) {
  Operand<float> here(qkv), there(qkv, 3);
  rotary_forward(stream, table, shape, here);
  rotary_forward(stream, table, shape, there);
  expect_same_bits(here, there);
}

TEST_P(Rotary, ChargesQueriesAndKeysReadAndWritten) {
  Operand<float> turned(qkv);
  const Work expected{{}, Bytes(2 * 4 * rows * (shape.heads + shape.key_value_heads) * shape.head_dim)};
  rotary_forward(stream, table, shape, turned);
  EXPECT_EQ(stream.take(), expected);
  rotary_backward(stream, table, shape, turned);
  EXPECT_EQ(stream.take(), expected);
}

TEST(RotaryScores, DependOnTheDistanceOfPositionsOnly) {
  const RotaryShape shape{9, 1, 1, 8};
  Operand<float> qkv(9, shape.qkv_size());
  const Operand<float> token = random_operand(1, shape.qkv_size(), 3);
  for (std::int64_t i = 0; i < qkv.size(); ++i) qkv[i] = token[i % token.size()];
  RotaryTable table;
  Stream stream;
  rotary_forward(stream, table, shape, qkv);
  const auto score = [&](std::int64_t query, std::int64_t key) {
    double sum = 0;
    for (int i = 0; i < 8; ++i) sum += qkv.view().row(query)[i] * qkv.view().row(key)[8 + i];
    return sum;
  };
  EXPECT_NEAR(score(3, 1), score(8, 6), 1e-5);
  EXPECT_GT(std::abs(score(3, 1) - score(3, 0)), 1e-3);
}

TEST(RotaryTables, FollowTheShapeOfTheCall) {
  RotaryTable table;
  Stream stream;
  for (const RotaryShape& shape : {RotaryShape{4, 1, 1, 4}, RotaryShape{4, 1, 1, 8}, RotaryShape{6, 1, 1, 8}}) {
    Operand<float> qkv = random_operand(6, shape.qkv_size(), 1);
    Operand<double> expected(qkv);
    rotary_forward(stream, table, shape, qkv);
    reference::rotary_forward(shape, expected);
    expect_close(qkv, expected, 1e-6);
  }
}

TEST(RotaryTables, RefuseAnOddHeadDimension) {
  RotaryTable table;
  EXPECT_THROW(table.get(4, 3), InternalError);
}

TEST(RotaryReference, BackwardIsTheGradientOfForward) {
  const RotaryShape shape{3, 2, 1, 4};
  Operand<double> qkv(random_operand(6, shape.qkv_size(), 1));
  const Operand<double> d_out(random_operand(6, shape.qkv_size(), 2));
  Operand<double> d_qkv(d_out);
  reference::rotary_backward(shape, d_qkv);
  expect_gradient(qkv, d_qkv, [&] {
    Operand<double> out(qkv);
    reference::rotary_forward(shape, out);
    return inner(out, d_out);
  });
}

}  // namespace
}  // namespace spillway::device::ops
