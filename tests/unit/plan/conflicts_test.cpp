// The two published conflicts, on the published layer: what one consumer of a tensor gives up is gone only if all do.
#include "plan/policy/conflicts.hpp"

#include <gmock/gmock.h>

#include "planning_fixtures.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;
using T = Tensor;
constexpr auto quantize = Treatment::quantize, offload = Treatment::offload, recompute = Treatment::recompute;

Assignment published() { return {BlockKind::moe, published_layer()}; }

TEST(Conflicts, ConsumersOfASharedTensorAreTracedThroughTheTable) {
  EXPECT_THAT(published().consumers(T::mlp_norm_output), ElementsAre(Op::router, Op::mlp_fc1));
  EXPECT_THAT(published().consumers(T::router_input_fp32), ElementsAre(Op::router));
  EXPECT_THAT(published().consumers(T::attention_output), ElementsAre(Op::attention_core, Op::out_projection));
  EXPECT_THAT(published().consumers(T::qkv), ElementsAre(Op::attention_core));
  EXPECT_THAT(published().consumers(T::expert_output), ElementsAre()) << "no backward pass reads it";
}

TEST(Conflicts, MultiPrecisionTheMoeInputAsFp8ForOneConsumerLeavesTwoCopies) {
  const OperatorMitigation expert{Op::mlp_fc1, T::mlp_norm_output, quantize};
  const OperatorMitigation router{Op::router, T::mlp_norm_output, quantize};
  EXPECT_EQ(published().conflict({expert}), Conflict::precision);
  EXPECT_EQ(published().conflict({router}), Conflict::precision);
  EXPECT_EQ(published().conflict({router, expert}), Conflict::none);
}

TEST(Conflicts, MultiDeviceTheAttentionOutputOffloadedForOneConsumerFreesNothing) {
  const OperatorMitigation core{Op::attention_core, T::attention_output, offload};
  const OperatorMitigation projection{Op::out_projection, T::attention_output, offload};
  EXPECT_EQ(published().conflict({core}), Conflict::place);
  EXPECT_EQ(published().conflict({projection}), Conflict::place);
  EXPECT_EQ(published().conflict({core, projection}), Conflict::none);
}

TEST(Conflicts, DependOnWhatTheOtherConsumerDoesByNow) {
  const auto conflict = [](Treatment at_core, Treatment at_projection) {
    Assignment a = published();
    a.apply({{Op::attention_core, T::attention_output, at_core}});
    return a.conflict({{Op::out_projection, T::attention_output, at_projection}});
  };
  for (const Treatment t : {Treatment::keep, recompute, offload, quantize}) EXPECT_EQ(conflict(t, t), Conflict::none);
  EXPECT_EQ(conflict(quantize, Treatment::keep), Conflict::precision);
  EXPECT_EQ(conflict(quantize, offload), Conflict::place);
  EXPECT_EQ(conflict(offload, quantize), Conflict::place);
  EXPECT_EQ(conflict(recompute, Treatment::keep), Conflict::place);
  EXPECT_EQ(conflict(offload, recompute), Conflict::place);
}

TEST(Conflicts, ATensorOfOneConsumerHasNone) {
  const Assignment a = published();
  int single = 0;
  for (const T t : a.tensors()) {
    if (a.consumers(t).size() > 1) continue;
    ++single;
    for (const Treatment treatment : {recompute, offload, quantize})
      EXPECT_EQ(a.conflict({{a.consumers(t).front(), t, treatment}}), Conflict::none) << name(t);
  }
  EXPECT_EQ(single, 13);  // all but u and the attention output
}

/// Steps of the greedy plan about one tensor.
std::vector<GreedyStep> steps_about(T tensor, bool with_quantization) {
  const StageBlock block{BlockKind::moe, 0, published_layer()};
  const BlockRows rows{balanced_rows(block.context, 1), {}};
  const MachineProfile machine;
  GreedyProblem problem{
      block, rows, held_at_most(0), Bytes(256), machine, GreedyChoice::greedy, with_quantization, !with_quantization,
      {},    {}};
  problem.not_recomputed = TensorSet::all();
  std::vector<GreedyStep> steps;
  for (const GreedyStep& step : plan_greedily(problem).trace)
    if (step.candidate.front().tensor == tensor) steps.push_back(step);
  return steps;
}

TEST(Conflicts, TheGreedyPlanRejectsTheOneSidedMitigationsAndAcceptsTheJointOne) {
  for (const bool precision : {true, false}) {
    const auto steps = steps_about(precision ? T::mlp_norm_output : T::attention_output, precision);
    ASSERT_EQ(steps.size(), 3u);
    for (const int alone : {0, 1}) {
      EXPECT_EQ(steps[alone].candidate.size(), 1u);
      EXPECT_EQ(steps[alone].conflict, precision ? Conflict::precision : Conflict::place);
    }
    EXPECT_EQ(steps[0].held, steps[1].held) << "a rejected candidate changes nothing";
    EXPECT_EQ(steps[2].candidate.size(), 2u);
    EXPECT_EQ(steps[2].conflict, Conflict::none);
    // 32 MiB in BF16, [2048, 8192]; as FP8 half of it less 4 bytes for each of 131,072 groups.
    const std::int64_t freed = precision ? (16 << 20) - 4 * 131072 : 32 << 20;
    EXPECT_EQ(steps[2].freed, Bytes(freed));
    EXPECT_EQ(steps[1].held - steps[2].held, Bytes(freed));
  }
}

}  // namespace
}  // namespace spillway
