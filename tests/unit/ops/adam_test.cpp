#include "device/ops/adam.hpp"

#include "base/error.hpp"
#include "device/ops/adam_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

constexpr std::int64_t odd_size = 5003;

struct State {
  Operand<float> parameters = random_operand(1, odd_size, 1), m{1, odd_size}, v{1, odd_size};
};

TEST(Adam, FollowsTheReferenceOverTwentySteps) {
  State state;
  Operand<double> parameters(state.parameters), m(1, odd_size), v(1, odd_size);
  Stream stream;
  AdamOptions options;
  options.learning_rate = 0.01;
  for (options.step = 1; options.step <= 20; ++options.step) {
    const Operand<float> gradients = random_operand(1, odd_size, 100 + static_cast<std::uint64_t>(options.step));
    adam_step(stream, options, state.parameters, gradients, state.m, state.v);
    reference::adam_step(options, parameters, Operand<double>(gradients), m, v);
  }
  expect_close(state.parameters, parameters, 2e-6);
  expect_close(state.m, m, 2e-6);
  expect_close(state.v, v, 2e-6);
}

TEST(Adam, FirstStepMovesByTheLearningRateAgainstTheGradient) {
  Operand<float> parameters(1, 2), m(1, 2), v(1, 2), gradients(1, 2);
  gradients[0] = 3e-3f, gradients[1] = -40.0f;
  Stream stream;
  adam_step(stream, {.learning_rate = 0.5, .step = 1}, parameters, gradients, m, v);
  EXPECT_NEAR(parameters[0], -0.5, 1e-5);
  EXPECT_NEAR(parameters[1], 0.5, 1e-5);
}

TEST(Adam, GivesTheSameBitsHoweverParametersAreSharded) {
  State whole, shards;
  const Operand<float> gradients = random_operand(1, odd_size, 7);
  Stream stream;
  const AdamOptions options{.step = 3};
  adam_step(stream, options, whole.parameters, gradients, whole.m, whole.v);
  for (std::int64_t first = 0; first < odd_size; first += 1237) {
    const std::int64_t n = std::min<std::int64_t>(1237, odd_size - first);
    const auto part = [&](Operand<float>& x) { return Matrix<float>{x.data() + first, 1, n}; };
    adam_step(stream, options, part(shards.parameters), {gradients.data() + first, 1, n}, part(shards.m),
              part(shards.v));
  }
  expect_same_bits(whole.parameters, shards.parameters);
  expect_same_bits(whole.m, shards.m);
  expect_same_bits(whole.v, shards.v);
}

TEST(Adam, ChargesGradientsOnceAndItsStateTwice) {
  State state;
  Stream stream;
  adam_step(stream, {}, state.parameters, random_operand(1, odd_size, 7), state.m, state.v);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 7 * odd_size)}));
  adam_step(stream, {}, {nullptr, 1, 0}, {nullptr, 1, 0}, {nullptr, 1, 0}, {nullptr, 1, 0});
  EXPECT_EQ(stream.take(), Work{});
}

TEST(Adam, RefusesAStepNumberThatHasNoBiasCorrection) {
  State state;
  Stream stream;
  EXPECT_THROW(adam_step(stream, {.step = 0}, state.parameters, state.m, state.m, state.v), InternalError);
}

}  // namespace
}  // namespace spillway::device::ops
