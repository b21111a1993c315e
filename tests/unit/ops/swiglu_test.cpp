#include "device/ops/swiglu.hpp"

#include "base/error.hpp"
#include "device/ops/exponential.hpp"
#include "operands.hpp"

namespace spillway::device::testing {
namespace {

TEST(Exponential, IsWithinTwoTenMillionthsOfTheTruth) {
  double worst = 0.0;
  for (int i = 0; i <= 1755000; ++i) {
    const float x = -87.25f + 1e-4f * static_cast<float>(i);
    worst = std::max(worst, std::abs(ops::exponential(x) / std::exp(static_cast<double>(x)) - 1.0));
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(Exponential, EndsInZeroInfinityAndNaN) {
  EXPECT_EQ(ops::exponential(0.0f), 1.0f);
  for (const float x : {-88.0f, -100.0f, -1e30f, -INFINITY}) EXPECT_EQ(ops::exponential(x), 0.0f) << x;
  for (const float x : {88.5f, 1e30f, INFINITY}) EXPECT_EQ(ops::exponential(x), INFINITY) << x;
  EXPECT_TRUE(std::isnan(ops::exponential(NAN)));
}

struct SwigluCase {
  std::int64_t rows, m;
  bool weighted;
};

class Swiglu : public ::testing::TestWithParam<SwigluCase> {
 protected:
  const std::int64_t rows = GetParam().rows, m = GetParam().m;
  const Operand<float> gate_up = random_operand(rows, 2 * m, 1), weights = random_operand(rows, 1, 2);
  const Operand<float> d_out = random_operand(rows, m, 3);
  const Operand<double> exact_gate_up{gate_up}, exact_weights{weights}, exact_d_out{d_out};
  const float* weight = GetParam().weighted ? weights.data() : nullptr;
  const double* exact_weight = GetParam().weighted ? exact_weights.data() : nullptr;
  const std::int64_t weight_bytes = GetParam().weighted ? 4 * rows : 0;
  Stream stream;
};

TEST_P(Swiglu, ForwardAgreesWithTheReferenceAndChargesItsBytes) {
  Operand<float> out(rows, m, NAN);
  Operand<double> expected(rows, m);
  ops::swiglu_forward(stream, gate_up, weight, out);
  ops::reference::swiglu_forward(exact_gate_up, exact_weight, expected);
  expect_close(out, expected, 1e-6);
  EXPECT_EQ(stream.take(), (Work{Flops(0), Bytes(4 * rows * 3 * m + weight_bytes)}));
}

TEST_P(Swiglu, BackwardAgreesWithTheReferenceAndChargesItsBytes) {
  Operand<float> d_gate_up(rows, 2 * m, NAN), d_weight(rows, 1, NAN);
  Operand<double> expected(rows, 2 * m), expected_d_weight(rows, 1);
  ops::swiglu_backward(stream, gate_up, weight, d_out, d_gate_up, d_weight.data());
  ops::reference::swiglu_backward(exact_gate_up, exact_weight, exact_d_out, expected, expected_d_weight.data());
  expect_close(d_gate_up, expected, 1e-6);
  expect_close(d_weight, expected_d_weight, 1e-5);
  EXPECT_EQ(stream.take(), (Work{Flops(0), Bytes(4 * rows * 5 * m + weight_bytes + 4 * rows)}));
}

TEST_P(Swiglu, WithoutAWeightGradientTheRestIsTheSame) {
  Operand<float> with(rows, 2 * m), without(rows, 2 * m, NAN), d_weight(rows, 1);
  ops::swiglu_backward(stream, gate_up, weight, d_out, with, d_weight.data());
  stream.take();
  ops::swiglu_backward(stream, gate_up, weight, d_out, without, nullptr);
  expect_same_bits(with, without);
  EXPECT_EQ(stream.take(), (Work{Flops(0), Bytes(4 * rows * 5 * m + weight_bytes)}));
}

TEST_P(Swiglu, RowsHaveTheSameBitsAtAnyAddress) {
  Operand<float> out(rows, m), out_moved(rows, m, 0.0f, 9), d(rows, 2 * m), d_moved(rows, 2 * m, 0.0f, 5);
  Operand<float> d_weight(rows, 1), d_weight_moved(rows, 1);
  const Operand<float> gate_up_moved(gate_up, 3), d_out_moved(d_out, 7);
  ops::swiglu_forward(stream, gate_up, weight, out);
  ops::swiglu_forward(stream, gate_up_moved, weight, out_moved);
  ops::swiglu_backward(stream, gate_up, weight, d_out, d, d_weight.data());
  ops::swiglu_backward(stream, gate_up_moved, weight, d_out_moved, d_moved, d_weight_moved.data());
  expect_same_bits(out, out_moved);
  expect_same_bits(d, d_moved);
  expect_same_bits(d_weight, d_weight_moved);
}

INSTANTIATE_TEST_SUITE_P(Ops, Swiglu,
                         ::testing::Values(SwigluCase{0, 8, true}, SwigluCase{1, 1, true}, SwigluCase{1, 17, false},
                                           SwigluCase{5, 33, true}, SwigluCase{3, 256, true}));

TEST(SwigluReference, BackwardIsTheGradientOfForward) {
  constexpr std::int64_t rows = 3, m = 5;
  Operand<double> gate_up(random_operand(rows, 2 * m, 1)), weight(random_operand(rows, 1, 2));
  const Operand<double> d_out(random_operand(rows, m, 3));
  Operand<double> d_gate_up(rows, 2 * m), d_weight(rows, 1);
  ops::reference::swiglu_backward(gate_up, weight.data(), d_out, d_gate_up, d_weight.data());
  const auto loss = [&] {
    Operand<double> out(rows, m);
    ops::reference::swiglu_forward(gate_up, weight.data(), out);
    return inner(out, d_out);
  };
  expect_gradient(gate_up, d_gate_up, loss);
  expect_gradient(weight, d_weight, loss);
}

TEST(SwigluShapes, ThatDisagreeAreRefused) {
  Stream stream;
  Operand<float> gate_up(2, 6), out(2, 4);
  EXPECT_THROW(ops::swiglu_forward(stream, gate_up, nullptr, out), InternalError);
}

}  // namespace
}  // namespace spillway::device::testing
