// A policy from outside the source tree takes its place in the table and decides.
#include <gmock/gmock.h>

#include "../unit/plan/one_block.hpp"
#include "base/error.hpp"
#include "plan/step_plan.hpp"

namespace spillway {
namespace {

TEST(ExtraPolicy, StandsInTheTableBehindTheBuiltInOnes) {
  EXPECT_EQ(policy_names().front(), "oracle");
  EXPECT_EQ(policy_names().back(), "half");
  EXPECT_THAT(find_policy("half").meaning, testing::HasSubstr("every second micro-batch"));
  EXPECT_TRUE(find_policy("half").ranked);
}

TEST(ExtraPolicy, KeepsEverySecondMicroBatchOfAnExpertLayer) {
  const auto half = make_policy("half");
  const std::vector<Task> order = {{Task::Kind::forward, 0},  {Task::Kind::forward, 1},  {Task::Kind::forward, 2},
                                   {Task::Kind::backward, 0}, {Task::Kind::backward, 1}, {Task::Kind::backward, 2}};
  StepPlan plan(stage_of({{BlockKind::moe, 0, BlockContext{}}}, order), *half);
  plan.begin_iteration(0);
  for (; !plan.finished(); plan.advance())
    if (plan.current().kind == Item::Kind::forward) plan.decide(plan.current().micro_batch, 0);
  EXPECT_EQ(plan.mitigations(0, 0), Mitigations::keep_all());
  EXPECT_EQ(plan.mitigations(1, 0).keep, TensorSet{Tensor::block_input});
  EXPECT_EQ(plan.mitigations(2, 0), Mitigations::keep_all());
}

TEST(ExtraPolicy, IsNamedWhereAnUnknownOneIsRefused) {
  try {
    make_policy("halve");
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("half"));
  }
}

}  // namespace
}  // namespace spillway
