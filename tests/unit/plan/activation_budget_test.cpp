// Algorithm 1 by hand: the budgets of a warm-up of four micro-batches and of the steady state after it.
#include "plan/policy/activation_budget.hpp"

#include <gtest/gtest.h>

#include <map>

#include "one_block.hpp"

namespace spillway {
namespace {

constexpr std::int64_t m_max = 1000, m0 = 100;

Bytes budget(std::int64_t used, int forwards) { return activation_budget({Bytes(m_max - used), Bytes(m0), forwards}); }

// (M_max - M_used - r M0) / r + M0 with M_max = 1000, M0 = 100, r = 4, 3, 2, 1:
//   i = 0: (1000 - 0 - 400) / 4 + 100 = 250, and 250 is used
//   i = 1: (1000 - 250 - 300) / 3 + 100 = 250
//   i = 2: (1000 - 500 - 200) / 2 + 100 = 250
//   i = 3: (1000 - 750 - 100) / 1 + 100 = 250
TEST(ActivationBudget, AWarmUpThatUsesItsBudgetsSharesEqually) {
  std::int64_t used = 0;
  for (const int r : {4, 3, 2, 1}) {
    EXPECT_EQ(budget(used, r), Bytes(250));
    used += 250;
  }
}

// The first uses 400: (1000 - 400 - 300) / 3 + 100 = 200 for the second, who uses 150; the third has
// (1000 - 550 - 200) / 2 + 100 = 225 and uses 240; the fourth (1000 - 790 - 100) + 100 = 210.
TEST(ActivationBudget, WhatOneOverspendsIsChargedToThoseAfterIt) {
  EXPECT_EQ(budget(0, 4), Bytes(250));
  EXPECT_EQ(budget(400, 3), Bytes(200));
  EXPECT_EQ(budget(550, 2), Bytes(225));
  EXPECT_EQ(budget(790, 1), Bytes(210));
}

TEST(ActivationBudget, IsNeverBelowTheLeastAMicroBatchCanDoWith) {
  EXPECT_EQ(budget(600, 4), Bytes(m0));  // exactly r M0 are left
  EXPECT_EQ(budget(900, 4), Bytes(m0));
  EXPECT_EQ(budget(2000, 1), Bytes(m0));
}

TEST(ActivationBudget, RoundsSharesDown) { EXPECT_EQ(budget(300, 3), Bytes(100 + 133)); }  // 400 / 3

/// A stage of one dense block whose micro-batches hold what the test says.
class Warehouse {
 public:
  explicit Warehouse(std::vector<Task> order)
      : memory_({{{BlockKind::dense, 0, {}}},
                 std::move(order),
                 Bytes(0),
                 Bytes(m_max),
                 Bytes(0),
                 {Footprint{Bytes(m0), Bytes(m0), Bytes(m0), Bytes(m0), {}, {}}}}) {
    skip();
  }
  int forwards() const { return memory_.forwards_before_backward(); }
  std::int64_t used() const { return memory_.level().value; }
  void forward(std::int64_t holds) {
    const Bytes b(holds);
    memory_.decide(memory_.current().micro_batch, 0, {b, b, b, b, {}, {}});
    memory_.advance();
    skip();
  }
  int next() const { return memory_.current().micro_batch; }

 private:
  void skip() {
    while (!memory_.finished() && memory_.current().kind != Item::Kind::forward) memory_.advance();
  }
  StageMemory memory_;
};

// Stage 0 of four: w + 1 = 4 micro-batches go forward before the first backward pass.
TEST(ActivationBudget, TheScheduleTellsHowManyMustShare) {
  Warehouse stage(one_forward_one_backward({4, 6})[0]);  // F0 F1 F2 F3 B0 F4 B1 F5 B2 ...
  for (const int r : {4, 3, 2, 1, 1, 1}) {
    EXPECT_EQ(stage.forwards(), r) << "micro-batch " << stage.next();
    stage.forward(200);
  }
}

// F0 F1 F2 F3 B2 F4 B0 F5 ...: interleaved orders do not free the oldest. Held 250, 200, 300, 150; B2 leaves 600:
// the budget of F4 is 1000 - 600 = 400. It takes 350; B0 leaves 600 + 350 - 250 = 700: F5 has 300.
TEST(ActivationBudget, SteadyStateFreesTheMicroBatchWhoseBackwardRan) {
  constexpr auto F = Task::Kind::forward, B = Task::Kind::backward;
  Warehouse stage({{F, 0}, {F, 1}, {F, 2}, {F, 3}, {B, 2}, {F, 4}, {B, 0}, {F, 5}, {B, 1}, {B, 3}, {B, 4}, {B, 5}});
  for (const std::int64_t holds : {250, 200, 300, 150}) stage.forward(holds);
  EXPECT_EQ(stage.next(), 4);
  EXPECT_EQ(stage.used(), 600);
  EXPECT_EQ(budget(stage.used(), stage.forwards()), Bytes(400));
  stage.forward(350);
  EXPECT_EQ(stage.next(), 5);
  EXPECT_EQ(stage.used(), 700);
  EXPECT_EQ(budget(stage.used(), stage.forwards()), Bytes(300));
}

}  // namespace
}  // namespace spillway
