// Two ranks and one tiny layer, worked through by hand: what a projection does with lanes, messages and copies.
#include "run/projection.hpp"

#include <gtest/gtest.h>

#include "plan/policy/policy.hpp"
#include "run/engine.hpp"

namespace spillway {
namespace {

/// A FLOP a second and nothing else computes; every message of a group takes 10 s, every copy the same.
class FlopPerSecond final : public device::TimeModel {
 public:
  explicit FlopPerSecond(double copy = 0, double slow_down = 1) : copy_(copy), slow_down_(slow_down) {}
  Seconds compute(device::Work work) const override { return Seconds(static_cast<double>(work.flops.value)); }
  Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(10); }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes) const override { return copy_; }
  double interference() const override { return slow_down_; }

 private:
  Seconds copy_;
  double slow_down_;
};

/// Two experts: rank 0 sends a row to each, rank 1 both to the second. Rank 0 receives one row, rank 1 three.
class OneAndThree final : public RoutingSource {
 public:
  void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const override {
    rows[0] = key.sequence % 2 == 0 ? 1 : 0;
    rows[1] = 2 - rows[0];
  }
  void choices(RoutingKey key, std::span<std::int32_t> experts) const override {
    experts[0] = key.sequence % 2 == 0 ? 0 : 1;
    experts[1] = 1;
  }
  bool in_burst(std::int64_t) const override { return false; }
};

/// One layer of hidden size 4, a head of 4, two experts of hidden size 2 on two ranks, top 1; a micro-batch of 2 tokens.
Case two_ranks() {
  Case c;
  ModelShape& m = c.model;
  m.hidden_size = m.head_dim = 4;
  m.num_attention_heads = m.num_key_value_heads = 1;
  m.moe_intermediate_size = m.num_experts = 2;
  m.num_experts_per_tok = m.num_hidden_layers = 1;
  m.head = false;
  c.grid = {1, 2, 1, 2};
  c.training.sequence_length = 2;
  c.training.micro_batch_size = c.training.micro_batches = 1;
  return c;
}

/// The same treatment of every MoE block.
class Fixed final : public Policy {
 public:
  explicit Fixed(const Mitigations& m) : mitigations_(m) {}
  Mitigations decide(const Situation& s) override {
    return s.block.kind == BlockKind::moe ? mitigations_ : Mitigations::keep_all();
  }

 private:
  Mitigations mitigations_;
};

ProjectedIteration project(const device::TimeModel& time, const Mitigations& mitigations, const Case& c = two_ranks()) {
  const OneAndThree routing;
  const Schedule schedule =
      one_forward_one_backward({c.grid.pipeline_parallel, static_cast<int>(c.training.micro_batches)});
  Projection projection({c, routing, schedule, time, "keep"},
                        [&](int) { return std::make_unique<Fixed>(mitigations); });
  return projection.run(0);
}

Mitigations offloading(Tensor t) {
  Mitigations m = Mitigations::keep_all();
  m.set(t, Treatment::offload);
  return m;
}

// FLOPs, S = 2 tokens, N = 1 and 3 rows. Forward: qkv 2 S 4 12 = 192, attention 2 S s 4 = 32, out 2 S 16 = 64, router
// 2 S 4 2 = 32: 320. fc1 and fc2 48 N: 48 and 144. Backward: fc2 32 N and fc1 64 N: 96 and 288; router 64, out 128,
// attention 80, qkv 384: 656.
//   rank 0: 320 | gate to 330 | dispatch to 340 | experts to 388, waits | combine 484 to 494
//   rank 1: 320 | gate to 330 | dispatch to 340 | experts to 484        | combine 484 to 494
//   backward: combine to 504 | experts: 600 and 792 | dispatch 792 to 802 | to 1458 | gradients to 1468, parameters 1478
TEST(Projection, CollectivesBeginWhenTheirLastMemberComes) {
  const ProjectedIteration p = project(FlopPerSecond(), Mitigations::keep_all());
  ASSERT_TRUE(p.record.completed());
  EXPECT_EQ(p.record.seconds, Seconds(1478));
  EXPECT_EQ(p.record.imbalance, 1.5);  // three rows, two on average
  EXPECT_EQ(p.ranks[0].compute_seconds, Seconds(320 + 48 + 96 + 656));
  EXPECT_EQ(p.ranks[1].compute_seconds, Seconds(320 + 144 + 288 + 656));
  for (const RankIteration& r : p.ranks) {
    EXPECT_EQ(r.all_to_all_seconds, Seconds(4 * 10));
    EXPECT_EQ(r.mitigation_seconds, Seconds(0));
    EXPECT_EQ(r.bubble_seconds, Seconds(0));
  }
  // The gate, four exchanges and the gradients; rank 0 waits for rank 1 beside: 96 forward and 192 backward.
  EXPECT_EQ(p.ranks[1].exposed_communication_seconds, Seconds(60));
  EXPECT_EQ(p.ranks[0].exposed_communication_seconds, Seconds(60 + 96 + 192));
}

/// Two layers: the second one's gradients travel beside the experts of the first, which take longer than the message.
TEST(Projection, GradientsOfALayerAreReducedBesideTheLayerBelow) {
  Case c = two_ranks();
  c.model.num_hidden_layers = 2;
  const ProjectedIteration plain = project(FlopPerSecond(), Mitigations::keep_all(), c);
  c.overlap_gradients = true;
  const ProjectedIteration beside = project(FlopPerSecond(), Mitigations::keep_all(), c);
  EXPECT_EQ(plain.record.seconds - beside.record.seconds, Seconds(10));
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(plain.ranks[r].gradient_reduction_seconds, Seconds(20));
    EXPECT_EQ(plain.ranks[r].hidden_gradient_reduction_seconds, Seconds(0));
    EXPECT_EQ(beside.ranks[r].gradient_reduction_seconds, Seconds(20));
    EXPECT_EQ(beside.ranks[r].hidden_gradient_reduction_seconds, Seconds(10));
    EXPECT_EQ(beside.ranks[r].compute_seconds, plain.ranks[r].compute_seconds);
  }
}

// qkv leaves after attention, its last reader: at 192 + 32 = 224, and comes back when the loss begins, at 494.
// Copies of 200 s: out to 424, in to 694, and attention's backward pass needs it at 994 only.
TEST(Projection, CopiesThatEndInTimeHideBesideComputation) {
  const ProjectedIteration p = project(FlopPerSecond(200), offloading(Tensor::qkv));
  EXPECT_EQ(p.record.seconds, Seconds(1478));
  for (const RankIteration& r : p.ranks) {
    EXPECT_EQ(r.mitigation_seconds, Seconds(0));
    EXPECT_EQ(r.hidden_mitigation_seconds, Seconds(400));
  }
}

// Copies of 600 s: out to 824; the way back cannot begin before and ends at 1424, 430 s after 994.
TEST(Projection, AReloadThatComesLateIsExposed) {
  const ProjectedIteration p = project(FlopPerSecond(600), offloading(Tensor::qkv));
  EXPECT_EQ(p.record.seconds, Seconds(1478 + 430));
  for (const RankIteration& r : p.ranks) {
    EXPECT_EQ(r.mitigation_seconds, Seconds(430));
    EXPECT_EQ(r.hidden_mitigation_seconds, Seconds(1200 - 430));
  }
}

// Twice as slow beside a copy. Out from 224 to 424: out projection and router take 96 s more, the gate ends at 426,
// combine at 590 (rank 1). Back from 590 to 790: experts go backward from 600, 190 s of them beside the copy: 95 s more.
TEST(Projection, ComputationBesideACopySlowsDown) {
  const ProjectedIteration p = project(FlopPerSecond(200, 2), offloading(Tensor::qkv));
  EXPECT_EQ(p.record.seconds, Seconds(1478 + 100 + 100));
  EXPECT_EQ(p.ranks[1].compute_seconds, Seconds(1408 + 100 + 100));
  EXPECT_EQ(project(FlopPerSecond(200, 2), Mitigations::keep_all()).record.seconds, Seconds(1478)) << "no copies";
}

// fc1's output again before SwiGLU goes backward: fc1 takes 32 N more, 32 and 96 s.
TEST(Projection, RecomputationIsExposedOnTheComputeLane) {
  Mitigations m = Mitigations::keep_all();
  m.set(Tensor::fc1_output, Treatment::recompute);
  const ProjectedIteration p = project(FlopPerSecond(), m);
  EXPECT_EQ(p.record.seconds, Seconds(1478 + 96));
  EXPECT_EQ(p.ranks[0].mitigation_seconds, Seconds(32));
  EXPECT_EQ(p.ranks[1].mitigation_seconds, Seconds(96));
  EXPECT_EQ(p.ranks[1].mitigation_flops, Flops(96));
}

// fc2's input again (SwiGLU costs no FLOPs): it is the next to compute after combine's backward exchange, but the wait for
// that exchange is not its own.
TEST(Projection, WaitingForAnExchangeIsMitigationOnlyWhereTheExchangeIs) {
  Mitigations m = Mitigations::keep_all();
  m.set(Tensor::fc2_input, Treatment::recompute);
  const ProjectedIteration p = project(FlopPerSecond(), m);
  EXPECT_EQ(p.record.seconds, Seconds(1478));
  EXPECT_EQ(p.ranks[0].mitigation_seconds, Seconds(0));
  EXPECT_EQ(p.ranks[0].exposed_communication_seconds, Seconds(60 + 96 + 192));
}

// Rows dispatched again: one more exchange of 10 s, for which both ranks wait.
TEST(Projection, ADispatchDoneAgainIsOneMoreExchange) {
  Mitigations m = Mitigations::keep_all();
  m.set(Tensor::fc1_input, Treatment::recompute);
  const ProjectedIteration p = project(FlopPerSecond(), m);
  EXPECT_EQ(p.ranks[0].all_to_all_seconds, Seconds(50));
  // fc1_input is needed once fc2 and SwiGLU have gone backward: rank 0 at 504 + 32, rank 1 at 504 + 96 = 600.
  EXPECT_EQ(p.record.seconds, Seconds(1478 + 10));
  EXPECT_EQ(p.ranks[1].mitigation_seconds, Seconds(10));
  EXPECT_EQ(p.ranks[0].mitigation_seconds, Seconds(10 + 64));
}

// Two stages of a layer each; a message occupies its sender for 5 s and arrives 2 s later.
TEST(Projection, StagesWaitForMessagesOfTheirNeighbours) {
  class WithMessages final : public device::TimeModel {
   public:
    Seconds compute(device::Work work) const override { return Seconds(static_cast<double>(work.flops.value)); }
    Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(0); }
    Message message(Bytes, int, int) const override { return {Seconds(5), Seconds(2)}; }
    Seconds copy(Bytes) const override { return Seconds(0); }
  };
  Case c = two_ranks();
  c.model.num_hidden_layers = 2;
  c.grid = {2, 1, 1, 1};
  // One rank a stage, both experts on it: 2 rows. Forward 320 + 96 = 416, backward 192 + 656 = 848.
  // stage 0: forward to 416; stage 1: from 423 to 839, backward to 1687; stage 0: from 1694 to 2542.
  const ProjectedIteration p = project(WithMessages(), Mitigations::keep_all(), c);
  EXPECT_EQ(p.record.seconds, Seconds(2542));
  EXPECT_EQ(p.ranks[1].bubble_seconds, Seconds(423));
  EXPECT_EQ(p.ranks[0].bubble_seconds, Seconds(1694 - 416));
}

TEST(Projection, MemoryThatDoesNotSufficeIsAnEventOfTheRankThatAskedForIt) {
  Case c = two_ranks();
  c.memory.alignment = Bytes(16);  // a row of hidden size 4
  const OneAndThree routing;
  const Schedule schedule = one_forward_one_backward({1, 1});
  const FlopPerSecond time;
  const auto peak = [&] {
    Projection ample({c, routing, schedule, time, "keep"});
    ample.run(0);
    return std::array<Bytes, 2>{ample.ledger(0).peak(), ample.ledger(1).peak()};
  }();
  ASSERT_LT(peak[0], peak[1]) << "rank 1 has more rows";
  c.memory.cap = peak[1];
  EXPECT_TRUE(Projection({c, routing, schedule, time, "keep"}).run(0).record.completed());
  c.memory.cap = peak[1] - Bytes(1);
  const IterationRecord record = Projection({c, routing, schedule, time, "keep"}).run(0).record;
  ASSERT_TRUE(record.oom.has_value());
  EXPECT_EQ(record.oom->rank, 1);
  EXPECT_EQ(record.charged_seconds(), record.oom->seconds);
}

TEST(Projection, RepeatsItselfFromIterationToIteration) {
  const Case c = two_ranks();
  const OneAndThree routing;
  const Schedule schedule = one_forward_one_backward({1, 1});
  const FlopPerSecond time(200, 2);
  Projection projection({c, routing, schedule, time, "keep"},
                        [](int) { return std::make_unique<Fixed>(offloading(Tensor::qkv)); });
  const ProjectedIteration first = projection.run(0), second = projection.run(1);
  EXPECT_EQ(first.record.seconds, second.record.seconds);
  EXPECT_EQ(first.ranks, second.ranks);
}

}  // namespace
}  // namespace spillway
