#include "device/ops/attention.hpp"

#include "base/error.hpp"
#include "operands.hpp"

namespace spillway::device::testing {
namespace {

using ops::AttentionShape;

/// Operands of one case: inputs of scale `scale`, and what both directions make of them.
struct Problem {
  explicit Problem(const AttentionShape& s, float scale = 1.0f, std::int64_t shift = 0)
      : shape(s),
        qkv(random_operand(s.rows(), s.qkv_size(), 1), shift),
        d_output(random_operand(s.rows(), s.query_size(), 2), shift),
        output(s.rows(), s.query_size(), NAN, shift),
        log_sum_exp(s.rows(), s.heads, NAN, shift),
        d_qkv(s.rows(), s.qkv_size(), NAN, shift) {
    for (std::int64_t i = 0; i < qkv.size(); ++i) qkv[i] *= scale;
  }
  void forward() { ops::attention_forward(stream, shape, qkv, output, log_sum_exp); }
  void backward() { ops::attention_backward(stream, shape, {qkv, output, log_sum_exp}, d_output, d_qkv); }

  AttentionShape shape;
  Operand<float> qkv, d_output, output, log_sum_exp, d_qkv;
  Stream stream;
};

class Attention : public ::testing::TestWithParam<AttentionShape> {
 protected:
  const AttentionShape shape = GetParam();
  const std::int64_t s = shape.sequence_length, q = shape.query_size();
  Problem problem{shape};
};

TEST_P(Attention, ForwardAgreesWithTheReferenceAndChargesTheCausalHalf) {
  problem.forward();
  Operand<double> output(shape.rows(), q), log_sum_exp(shape.rows(), shape.heads);
  ops::reference::attention_forward(shape, Operand<double>(problem.qkv), output, log_sum_exp);
  expect_close(problem.output, output, 5e-6);
  expect_close(problem.log_sum_exp, log_sum_exp, 5e-6);
  EXPECT_EQ(problem.stream.take(), (Work{Flops(shape.sequences * 2 * s * s * q),
                                         Bytes(4 * shape.rows() * (shape.qkv_size() + q + shape.heads))}));
}

TEST_P(Attention, BackwardAgreesWithTheReferenceAndChargesTheRecomputedScores) {
  problem.forward();
  problem.stream.take();
  problem.backward();
  Operand<double> expected(shape.rows(), shape.qkv_size());
  ops::reference::attention_backward(shape, Operand<double>(problem.qkv), Operand<double>(problem.d_output), expected);
  expect_close(problem.d_qkv, expected, 2e-5);
  EXPECT_EQ(problem.stream.take(), (Work{Flops(shape.sequences * 5 * s * s * q),
                                         Bytes(4 * shape.rows() * (2 * shape.qkv_size() + 2 * q + shape.heads))}));
}

TEST_P(Attention, RepeatsBitForBitAtAnyAddress) {
  Problem again(shape, 1.0f, 5);
  for (Problem* r : {&problem, &again}) {
    r->forward();
    r->backward();
  }
  expect_same_bits(problem.output, again.output);
  expect_same_bits(problem.log_sum_exp, again.log_sum_exp);
  expect_same_bits(problem.d_qkv, again.d_qkv);
}

// {sequences, sequence_length, heads, key_value_heads, head_dim}; the last two cross both kinds of blocks.
INSTANTIATE_TEST_SUITE_P(Ops, Attention,
                         ::testing::Values(AttentionShape{1, 1, 1, 1, 2}, AttentionShape{3, 1, 4, 2, 8},
                                           AttentionShape{2, 17, 4, 1, 2}, AttentionShape{1, 64, 2, 2, 16},
                                           AttentionShape{2, 65, 6, 3, 5}, AttentionShape{0, 8, 2, 1, 4},
                                           AttentionShape{1, 512, 2, 1, 64}, AttentionShape{1, 579, 2, 1, 3}));

TEST(AttentionValues, LargeScoresNeitherOverflowNorVanish) {
  const AttentionShape shape{1, 530, 1, 1, 4};
  Problem problem(shape, 30.0f);  // scores up to several thousand
  problem.forward();
  problem.backward();
  Operand<double> output(shape.rows(), 4), log_sum_exp(shape.rows(), 1);
  ops::reference::attention_forward(shape, Operand<double>(problem.qkv), output, log_sum_exp);
  expect_close(problem.log_sum_exp, log_sum_exp, 1e-6);
  for (std::int64_t i = 0; i < problem.d_qkv.size(); ++i) ASSERT_TRUE(std::isfinite(problem.d_qkv[i])) << i;
}

TEST(AttentionCausality, ALaterTokenChangesNothingBefore) {
  const AttentionShape shape{1, 70, 2, 1, 8};
  Problem before(shape), after(shape);
  for (std::int64_t j = 0; j < shape.qkv_size(); ++j) after.qkv[69 * shape.qkv_size() + j] += 3.0f;
  before.forward();
  after.forward();
  for (std::int64_t i = 0; i < 69 * shape.query_size(); ++i) ASSERT_EQ(before.output[i], after.output[i]) << i;
  EXPECT_NE(before.output[69 * shape.query_size()], after.output[69 * shape.query_size()]);
}

TEST(AttentionSequences, DoNotSeeEachOther) {
  const AttentionShape two{2, 33, 2, 1, 8}, one{1, 33, 2, 1, 8};
  Problem both(two);
  both.forward();
  both.backward();
  for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
    Problem alone(one);
    std::copy_n(both.qkv.view().row(33 * sequence), alone.qkv.size(), alone.qkv.data());
    std::copy_n(both.d_output.view().row(33 * sequence), alone.d_output.size(), alone.d_output.data());
    alone.forward();
    alone.backward();
    for (std::int64_t i = 0; i < alone.d_qkv.size(); ++i)
      ASSERT_EQ(alone.d_qkv[i], both.d_qkv[sequence * alone.d_qkv.size() + i]) << i;
  }
}

TEST(AttentionReference, BackwardIsTheGradientOfForward) {
  const AttentionShape shape{2, 4, 4, 2, 3};
  Operand<double> qkv(random_operand(shape.rows(), shape.qkv_size(), 1)), d_qkv(shape.rows(), shape.qkv_size());
  const Operand<double> d_output(random_operand(shape.rows(), shape.query_size(), 2));
  ops::reference::attention_backward(shape, qkv, d_output, d_qkv);
  expect_gradient(qkv, d_qkv, [&] {
    Operand<double> output(shape.rows(), shape.query_size()), log_sum_exp(shape.rows(), shape.heads);
    ops::reference::attention_forward(shape, qkv, output, log_sum_exp);
    return inner(output, d_output);
  });
}

TEST(AttentionShapes, ThatDisagreeAreRefused) {
  Problem uneven({1, 4, 3, 2, 2});
  EXPECT_THROW(uneven.forward(), InternalError);
  Problem problem({1, 4, 2, 2, 2});
  problem.shape.head_dim = 3;
  EXPECT_THROW(problem.forward(), InternalError);
  EXPECT_THROW(problem.backward(), InternalError);
}

}  // namespace
}  // namespace spillway::device::testing
