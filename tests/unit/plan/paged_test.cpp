// Paged stashing: what goes to the pool and what spills, worked by hand, and its promise at the planned load.
#include <gtest/gtest.h>

#include <map>

#include "static_stage.hpp"

namespace spillway {
namespace {

using T = Tensor;

/// A middle stage of MoE layers, two expert ranks, 16 rows at balance. Of N rows: fc1_input 32 N bytes, fc1_output 32 N,
/// fc2_input 16 N; 1280 at balance.
StaticStage moe_stage(std::int64_t layers, std::string_view order) {
  StaticStage s = dense_stage(layers, order);
  ModelShape& m = s.setup.shape;
  m.first_k_dense_replace = 0;
  m.num_experts = 4;
  m.num_experts_per_tok = 1;
  m.moe_intermediate_size = 4;
  s.setup.sequence_length = 16;
  s.setup.grid.data_parallel = s.setup.grid.expert_parallel = 2;
  return s;
}

struct Spill {
  T tensor;
  int micro_batch, block;
  bool operator==(const Spill&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Spill& s) {
    return out << name(s.tensor) << " of micro-batch " << s.micro_batch << ", block " << s.block;
  }
};

/// An iteration in which rank 0 receives `rows(micro-batch)` rows in every block.
std::vector<Spill> iteration(StepPlan& plan, const std::function<std::int64_t(int)>& rows) {
  std::vector<Spill> spilled;
  for (plan.begin_iteration(0); !plan.finished(); plan.advance()) {
    const Item& item = plan.current();
    if (item.kind != Item::Kind::forward) continue;
    plan.decide(item.micro_batch, item.block);
    if (plan.blocks()[static_cast<std::size_t>(item.block)].kind != BlockKind::moe) continue;
    const GateTable table{{rows(item.micro_batch), 0, 0, 0, 0, 0, 0, 0}, 2, 4};
    const std::vector<Offer> offers(2, plan.offer(item.micro_batch, item.block));
    plan.decide_after_gate(item.micro_batch, item.block, {table, offers, 0});
    for (const T t : {T::fc1_input, T::fc1_output, T::fc2_input})
      if (plan.program(item.micro_batch, item.block).offloaded.contains(t))
        spilled.push_back({t, item.micro_batch, item.block});
  }
  return spilled;
}

std::vector<Spill> spills(const StaticStage& s, std::int64_t pool, const std::function<std::int64_t(int)>& rows) {
  PolicyOptions options;
  options.paged_pool = Bytes(pool);
  const auto policy = make_policy("paged", options);
  StepPlan plan(s.step_setup(), *policy);
  return iteration(plan, rows);
}
std::int64_t balanced(int) { return 16; }
using Spills = std::vector<Spill>;

TEST(Paged, FillsThePoolAndSpillsWhatNoLongerFits) {
  const StaticStage s = moe_stage(1, "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(spills(s, 3 * 1280, balanced), Spills{});
  // F0 takes 1280 of 2000, F1 512 of the 720 left, F2 nothing of the 208. When B0 has given 1280 back, F3 finds 1488.
  const Spills expected = {
      {T::fc1_output, 1, 0}, {T::fc2_input, 1, 0}, {T::fc1_input, 2, 0}, {T::fc1_output, 2, 0}, {T::fc2_input, 2, 0}};
  EXPECT_EQ(spills(s, 2000, balanced), expected);
  // 1792 is just enough for F1's fc1_input, 512 of 512, and for all of F3 beside it, 1280 of 1280. In a byte less F1 has
  // 511, for its fc2_input alone.
  EXPECT_EQ(spills(s, 1792, balanced), expected);
  EXPECT_EQ(spills(s, 1791, balanced), (Spills{{T::fc1_input, 1, 0},
                                               {T::fc1_output, 1, 0},
                                               {T::fc1_input, 2, 0},
                                               {T::fc1_output, 2, 0},
                                               {T::fc2_input, 2, 0}}));
}

TEST(Paged, DecidesByTheRowsThatTheGateTells) {
  const StaticStage s = moe_stage(1, "F0 F1 B0 B1");
  // 40 rows: 1280, 1280, 640. Of 2000, fc1_input leaves 720, too little for fc1_output, enough for fc2_input. That leaves
  // 80 for a micro-batch without rows, which needs nothing.
  const auto hot = [](int micro_batch) { return micro_batch == 0 ? 40 : 0; };
  EXPECT_EQ(spills(s, 2000, hot), (Spills{{T::fc1_output, 0, 0}}));
}

TEST(Paged, EveryLayerOfAMicroBatchCounts) {
  const StaticStage s = moe_stage(2, "F0 B0 F1 B1");
  // Layer 0 takes 1280 of 1800, layer 1 512 of 520; the next micro-batch finds the pool empty again.
  EXPECT_EQ(spills(s, 1800, balanced),
            (Spills{{T::fc1_output, 0, 1}, {T::fc2_input, 0, 1}, {T::fc1_output, 1, 1}, {T::fc2_input, 1, 1}}));
}

TEST(Paged, AnIterationDecidesAsTheOneBeforeIt) {
  const StaticStage s = moe_stage(2, "F0 F1 B0 F2 B1 B2");
  PolicyOptions options;
  options.paged_pool = Bytes(3000);
  const auto policy = make_policy("paged", options);
  StepPlan plan(s.step_setup(), *policy);
  const Spills first = iteration(plan, balanced);
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(iteration(plan, balanced), first);
  iteration(plan, [](int) { return 32; });
  EXPECT_EQ(iteration(plan, balanced), first);
}

TEST(Paged, WhatTheHostTierCannotTakeStaysOnTheDevice) {
  StaticStage s = moe_stage(1, "F0 F1 F2 B0 B1 B2");
  // Of 1023, fc1_input takes 512, fc1_output would take 512 of 511, fc2_input takes 256. F1 finds 255 and spills nothing;
  // before F2 micro-batch 0 has come back for B0.
  s.host_cap = Bytes(1023);
  EXPECT_EQ(spills(s, 1, balanced),
            (Spills{{T::fc1_input, 0, 0}, {T::fc2_input, 0, 0}, {T::fc1_input, 2, 0}, {T::fc2_input, 2, 0}}));
  s.machine.shared_memory = true;
  EXPECT_EQ(spills(s, 1, balanced), Spills{});
}

TEST(Paged, ThePoolIsWhatTheCapLeavesWhenAllOfItIsInTheHostTier) {
  StaticStage s = moe_stage(1, "F0 F1 F2 B0 B1 B2");
  const auto all_spilled = [&] {
    const StageFactsOf facts(s);
    Mitigations m = Mitigations::keep_all();
    for (const T t : {T::fc1_input, T::fc1_output, T::fc2_input}) m.set(t, Treatment::offload);
    return static_peak(*facts, {m}, s.load).device;
  };
  s.cap = all_spilled() + Bytes(2000);
  EXPECT_EQ(spills(s, 0, balanced), spills(s, 2000, balanced));
  EXPECT_NE(spills(s, 0, balanced), spills(s, 1791, balanced));
  s.cap = all_spilled() - Bytes(1);  // nothing is left: all spills, and it will not help
  EXPECT_EQ(spills(s, 0, balanced).size(), 9u);
}

TEST(Paged, FitsAtThePlannedLoadWheneverItFitsWithAllInTheHostTier) {
  int fitting = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    StaticStage s = random_stage(seed);
    s.cap = peak_range(s, s.load).at(Draw(seed + 300).uniform(0.2, 1));
    const StageFactsOf facts(s);
    std::vector<Mitigations> spilled(facts->blocks.size(), Mitigations::keep_all());
    for (Mitigations& m : spilled)
      for (const T t : {T::fc1_input, T::fc1_output, T::fc2_input}) m.set(t, Treatment::offload);
    const StaticPeak least = static_peak(*facts, spilled, s.load);
    const StaticPeak books = carried_out(s, *make_policy("paged"), s.load);
    ASSERT_LE(books.host, least.host) << "seed " << seed;
    const Bytes reduction = s.peak_of_gradient_step();
    if (least.device > s.cap) continue;
    ++fitting;
    ASSERT_LE(books.device, std::max(s.cap, reduction)) << "seed " << seed;
  }
  EXPECT_GT(fitting, 50);
}

}  // namespace
}  // namespace spillway
