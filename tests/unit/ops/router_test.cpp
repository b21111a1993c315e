#include "device/ops/router.hpp"

#include "device/ops/router_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

struct RouterExtents {
  std::int64_t tokens, hidden, experts, chosen;
};
class Router : public ::testing::TestWithParam<RouterExtents> {
 protected:
  const std::int64_t tokens = GetParam().tokens, hidden = GetParam().hidden, experts = GetParam().experts,
                     chosen = GetParam().chosen;
  const Operand<float> u = random_operand(tokens, hidden, 1), w = random_operand(hidden, experts, 2);
  const Operand<std::int32_t> choices = random_choices(tokens, chosen, experts, 3);
  const Operand<float> d_weights = random_operand(tokens, chosen, 4);
  Operand<float> state{2 * tokens, experts, -7.0f}, d_logits{tokens, experts, -7.0f};
  Operand<float> d_u = random_operand(tokens, hidden, 5), d_w = random_operand(hidden, experts, 6);
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Extents, Router,
                         ::testing::Values(RouterExtents{0, 3, 4, 2}, RouterExtents{1, 3, 1, 1},
                                           RouterExtents{1, 3, 5, 5}, RouterExtents{9, 3, 5, 3},
                                           RouterExtents{70, 33, 17, 6}, RouterExtents{12, 16, 128, 8}));

TEST_P(Router, ForwardAgreesWithReference) {
  Operand<double> expected(2 * tokens, experts);
  router_forward(stream, u, w, choices, state);
  reference::router_forward(Operand<double>(u), Operand<double>(w), choices, expected);
  expect_close(state, expected, 1e-5);
}

TEST_P(Router, BackwardAgreesWithReference) {
  router_forward(stream, u, w, choices, state);
  Operand<double> exact(2 * tokens, experts), exact_logits(tokens, experts);
  reference::router_forward(Operand<double>(u), Operand<double>(w), choices, exact);
  for (const bool accumulate : {false, true}) {
    Operand<float> actual_u(d_u), actual_w(d_w);
    Operand<double> expected_u(d_u), expected_w(d_w);
    router_backward(stream, u, w, choices, state, d_weights, d_logits, actual_u, actual_w, accumulate);
    reference::router_backward(Operand<double>(u), Operand<double>(w), choices, exact, Operand<double>(d_weights),
                               exact_logits, expected_u, expected_w, accumulate);
    expect_close(d_logits, exact_logits, 1e-5);
    expect_close(actual_u, expected_u, 2e-5);
    expect_close(actual_w, expected_w, 2e-5);
  }
}

TEST_P(Router, WeightsAndProbabilitiesSumToOneAndOnlyChosenExpertsWeigh) {
  router_forward(stream, u, w, choices, state);
  for (std::int64_t t = 0; t < tokens; ++t) {
    double probabilities = 0, of_chosen = 0;
    std::int64_t weighing = 0;
    for (std::int64_t e = 0; e < experts; ++e) probabilities += state.view().row(t)[e];
    for (std::int64_t e = 0; e < experts; ++e) weighing += state.view().row(tokens + t)[e] != 0;
    for (std::int64_t j = 0; j < chosen; ++j) of_chosen += state.view().row(tokens + t)[choices[t * chosen + j]];
    EXPECT_NEAR(probabilities, 1.0, 1e-6);
    EXPECT_NEAR(of_chosen, 1.0, 1e-6);
    EXPECT_EQ(weighing, chosen);
  }
}

TEST_P(Router, SameBitsOnRepetition) {
  Operand<float> again(state), again_u(d_u), again_w(d_w);
  router_forward(stream, u, w, choices, state);
  router_forward(stream, u, w, choices, again);
  expect_same_bits(state, again);
  router_backward(stream, u, w, choices, state, d_weights, d_logits, d_u, d_w, true);
  router_backward(stream, u, w, choices, again, d_weights, d_logits, again_u, again_w, true);
  expect_same_bits(d_u, again_u);
  expect_same_bits(d_w, again_w);
}

TEST_P(Router, ChargesItsProductsAndItsSoftmax) {
  const Flops product(2 * tokens * hidden * experts);
  const std::int64_t logits = tokens * experts, c = tokens * chosen, input = tokens * hidden, weight = hidden * experts;
  router_forward(stream, u, w, choices, state);
  EXPECT_EQ(stream.take(), (Work{product, Bytes(4 * (input + weight + logits + c + 2 * logits + logits))}));
  for (const bool accumulate : {false, true}) {
    router_backward(stream, u, w, choices, state, d_weights, d_logits, d_u, d_w, accumulate);
    const std::int64_t softmax = 2 * c + 2 * logits, to_u = logits + weight + input * (accumulate ? 2 : 1),
                       to_w = input + logits + 2 * weight;
    EXPECT_EQ(stream.take(), (Work{product * 2, Bytes(4 * (softmax + to_u + to_w))}));
  }
}

TEST(RouterExtremes, ChosenExpertsOfVanishingProbabilityStillShareAWeightOfOne) {
  const Operand<float> u(1, 1, 1.0f);
  Operand<float> w(1, 3), state(2, 3);
  w[0] = 500.0f, w[1] = -500.0f, w[2] = -500.0f;
  Operand<std::int32_t> choices(1, 2);
  choices[0] = 1, choices[1] = 2;
  Stream stream;
  router_forward(stream, u, w, choices, state);
  EXPECT_EQ(state[0], 1.0f);
  EXPECT_EQ(state[3], 0.0f);
  EXPECT_EQ(state[4], 0.5f);
  EXPECT_EQ(state[5], 0.5f);
}

TEST(RouterReference, BackwardIsTheGradientOfForward) {
  const std::int64_t tokens = 3, hidden = 4, experts = 5, k = 2;
  Operand<double> u(random_operand(tokens, hidden, 1)), w(random_operand(hidden, experts, 2));
  const Operand<std::int32_t> choices = random_choices(tokens, k, experts, 3);
  const Operand<double> d_weights(random_operand(tokens, k, 4));
  Operand<double> state(2 * tokens, experts), d_logits(tokens, experts), d_u(tokens, hidden), d_w(hidden, experts);
  const auto loss = [&] {
    reference::router_forward(u, w, choices, state);
    double sum = 0;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < k; ++j)
        sum += d_weights[t * k + j] * state.view().row(tokens + t)[choices[t * k + j]];
    return sum;
  };
  loss();
  reference::router_backward(u, w, choices, state, d_weights, d_logits, d_u, d_w, false);
  expect_gradient(u, d_u, loss);
  expect_gradient(w, d_w, loss);
}

}  // namespace
}  // namespace spillway::device::ops
