#include "device/ops/rms_norm.hpp"

#include "device/ops/rms_norm_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

struct Extents {
  std::int64_t rows, hidden;
};
class RmsNorm : public ::testing::TestWithParam<Extents> {
 protected:
  const std::int64_t rows = GetParam().rows, hidden = GetParam().hidden;
  const Operand<float> x = random_operand(rows, hidden, 1), gain = random_operand(1, hidden, 2);
  const Operand<float> d_out = random_operand(rows, hidden, 3);
  Operand<float> d_x = random_operand(rows, hidden, 4), d_gain = random_operand(1, hidden, 5);
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Extents, RmsNorm,
                         ::testing::Values(Extents{0, 4}, Extents{1, 1}, Extents{1, 3}, Extents{5, 3}, Extents{64, 16},
                                           Extents{65, 257}, Extents{130, 300}));

TEST_P(RmsNorm, ForwardAgreesWithReference) {
  Operand<float> out(rows, hidden);
  Operand<double> expected(rows, hidden);
  rms_norm_forward(stream, x, gain, out);
  reference::rms_norm_forward(Operand<double>(x), Operand<double>(gain), expected);
  expect_close(out, expected, 2e-6);
}

TEST_P(RmsNorm, BackwardAgreesWithReference) {
  for (const bool accumulate : {false, true}) {
    Operand<double> expected_x(d_x), expected_gain(d_gain);
    Operand<float> actual_x(d_x), actual_gain(d_gain);
    rms_norm_backward(stream, x, gain, d_out, actual_x, actual_gain, accumulate);
    reference::rms_norm_backward(Operand<double>(x), Operand<double>(gain), Operand<double>(d_out), expected_x,
                                 expected_gain, accumulate);
    expect_close(actual_x, expected_x, 5e-6);
    expect_close(actual_gain, expected_gain, 1e-5);
  }
}

TEST_P(RmsNorm, SameBitsAtAnotherAddressAndForAnySliceOfRows) {
  Operand<float> whole_x(d_x), whole_gain(d_gain), sliced_x(d_x, 3), sliced_gain(d_gain, 1);
  Operand<float> whole_out(rows, hidden), sliced_out(rows, hidden, 0, 5);
  const Operand<float> moved(x, 7), moved_gain(gain, 3), moved_d(d_out, 1);
  rms_norm_forward(stream, x, gain, whole_out);
  rms_norm_backward(stream, x, gain, d_out, whole_x, whole_gain, true);
  const std::int64_t cut = rows / 3;
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, rows - cut}}) {
    rms_norm_forward(stream, moved.view().slice(first, count), moved_gain, sliced_out.view().slice(first, count));
    rms_norm_backward(stream, moved.view().slice(first, count), moved_gain, moved_d.view().slice(first, count),
                      sliced_x.view().slice(first, count), sliced_gain, true);
  }
  expect_same_bits(whole_out, sliced_out);
  expect_same_bits(whole_x, sliced_x);
  expect_same_bits(whole_gain, sliced_gain);
}

TEST_P(RmsNorm, ChargesEveryMatrixOnceAndAccumulatedOnesTwice) {
  Operand<float> out(rows, hidden);
  rms_norm_forward(stream, x, gain, out);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (2 * rows * hidden + hidden))}));
  rms_norm_backward(stream, x, gain, d_out, d_x, d_gain, false);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (3 * rows * hidden + 3 * hidden))}));
  rms_norm_backward(stream, x, gain, d_out, d_x, d_gain, true);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (4 * rows * hidden + 3 * hidden))}));
}

TEST(RmsNormReference, BackwardIsTheGradientOfForward) {
  Operand<double> x(random_operand(3, 5, 1)), gain(random_operand(1, 5, 2));
  const Operand<double> d_out(random_operand(3, 5, 3));
  Operand<double> d_x(3, 5, 9.0), d_gain(1, 5);
  reference::rms_norm_backward(x, gain, d_out, d_x, d_gain, false);
  const auto loss = [&] {
    Operand<double> out(3, 5);
    reference::rms_norm_forward(x, gain, out);
    return inner(out, d_out);
  };
  expect_gradient(x, d_x, loss);
  expect_gradient(gain, d_gain, loss);
}

TEST(RmsNormReference, NormalisesToUnitMeanSquare) {
  Operand<double> x(random_operand(2, 100, 1)), gain(1, 100, 1.0), out(2, 100);
  reference::rms_norm_forward(x, gain, out);
  EXPECT_NEAR(inner(out, out), 200.0, 1e-3);
}

}  // namespace
}  // namespace spillway::device::ops
