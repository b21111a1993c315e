// The unified plan: worked by hand on dense layers, and its promises at random.
#include <algorithm>

#include "static_properties.hpp"

namespace spillway {
namespace {

using T = Tensor;
constexpr Seconds launch{5e-6};  // of every operator and copy here: so small that nothing else counts

PolicyOptions published(double worst_load = 2.6) {
  PolicyOptions options;
  options.choice = GreedyChoice::greedy;
  options.worst_load = worst_load;
  return options;
}

StaticChoice plan(StaticStage s, std::int64_t activations, const PolicyOptions& options) {
  s.cap = s.fixed() + Bytes(activations);
  return plan_unified(*StageFactsOf(s), options);
}

/// Saved tensors of a dense layer that get a treatment.
TensorSet treated(const Mitigations& m, Treatment treatment) {
  TensorSet set;
  for (const T t : {T::block_input, T::attention_norm_output, T::qkv, T::attention_output, T::log_sum_exp,
                    T::mlp_norm_input, T::mlp_norm_output, T::mlp_fc1_output, T::mlp_fc2_input})
    if (m.of(t) == treatment) set.insert(t);
  return set;
}

TEST(Unified, TakesTheLargestReductionsOfABlockUntilTheStageFits) {
  StaticStage s = dense_stage(1, "F0 F1 B0 B1");
  // 2 x 1824 and 128 + 512 in the first backward pass.
  EXPECT_EQ(plan(s, 4288, published()).plan[0], Mitigations::keep_all());
  // fc1 output: 512 less in the micro-batch that waits. One operator again, in two micro-batches.
  const StaticChoice one = plan(s, 4287, published());
  EXPECT_EQ(treated(one.plan[0], Treatment::recompute), TensorSet{T::mlp_fc1_output});
  EXPECT_EQ(one.peak.device, s.fixed() + Bytes(4288 - 512));
  EXPECT_NEAR(one.added.value, 2 * launch.value, 1e-12);
  // qkv: 384 less there, and 384 less in the other, whose MLP goes backward first.
  const StaticChoice two = plan(s, 3775, published());
  EXPECT_EQ(treated(two.plan[0], Treatment::recompute), (TensorSet{T::mlp_fc1_output, T::qkv}));
  EXPECT_EQ(two.peak.device, s.fixed() + Bytes(4288 - 512 - 2 * 384));
}

TEST(Unified, BlocksShareWhatIsLeftInEqualPartsUpToOneStep) {
  const StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  const auto recomputed = [&](std::int64_t activations, std::size_t block) {
    return treated(plan(s, activations, published()).plan[block], Treatment::recompute);
  };
  // 4 x 1824 + 640 = 7936. Each step takes its bytes from the micro-batch that waits and, in the first layer, from the
  // one whose second layer goes backward.
  EXPECT_EQ(recomputed(7935, 0), TensorSet{T::mlp_fc1_output});
  EXPECT_EQ(recomputed(7935, 1), TensorSet{});
  EXPECT_EQ(recomputed(7936 - 3 * 512, 0), TensorSet{T::mlp_fc1_output});
  EXPECT_EQ(recomputed(7936 - 3 * 512, 1), TensorSet{T::mlp_fc1_output});
  EXPECT_EQ(recomputed(7935 - 3 * 512, 0), (TensorSet{T::mlp_fc1_output, T::qkv}));
  EXPECT_EQ(recomputed(7935 - 3 * 512, 1), TensorSet{T::mlp_fc1_output});
}

TEST(Unified, OffloadsWhereTheBlockHidesTheCopies) {
  StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  s.machine.launch = Seconds(0);
  s.machine.peak_flops = s.machine.memory_bandwidth = 1e9;
  PolicyOptions ratio = published();
  ratio.choice = GreedyChoice::ratio;
  const StaticChoice fast_link = plan(s, 7424, ratio);
  EXPECT_EQ(fast_link.added, Seconds(0));
  EXPECT_GT(fast_link.peak.host, Bytes(0));
  s.machine.link_bandwidth = 1e5;  // 1.28 ms for the smallest but one, far more than a pass
  const StaticChoice slow_link = plan(s, 7424, ratio);
  EXPECT_TRUE(slow_link.fits);
  EXPECT_EQ(slow_link.peak.host, Bytes(0));
  EXPECT_GT(slow_link.added, Seconds(0));
}

/// A middle stage with one MoE layer and 64 rows at balance, 128 at most.
StaticStage moe_stage() {
  StaticStage s = dense_stage(1, "F0 F1 B0 B1");
  ModelShape& m = s.setup.shape;
  m.first_k_dense_replace = 0;
  m.num_experts = 4;
  m.num_experts_per_tok = 2;
  m.moe_intermediate_size = 16;
  s.setup.sequence_length = 32;
  s.setup.grid.data_parallel = s.setup.grid.expert_parallel = 2;
  return s;
}

TEST(Unified, PlansForTheWorstLoadAndForMoreOnlyIfAsked) {
  StaticStage s = moe_stage();
  s.cap = peak_range(s, 1.5).at(0.6);
  const auto at = [&](double worst, double asked) {
    s.load = asked;
    return plan_unified(*StageFactsOf(s), published(worst));
  };
  EXPECT_EQ(at(1.5, 1).plan, at(1.5, 1.5).plan);
  EXPECT_EQ(at(1.5, 1).peak.device, at(1.5, 1.5).peak.device);
  EXPECT_EQ(at(1.5, 2).plan, at(2, 1).plan);
  EXPECT_NE(at(1.5, 1).plan, at(2, 1).plan);
}

TEST(Unified, DispatchesAgainOnlyWhereNothingElseFits) {
  StaticStage s = moe_stage();
  s.machine.node_bandwidth = s.machine.network_bandwidth = 1e5;  // a dispatch takes far longer than all else
  s.host_cap = Bytes(0);
  s.order = tasks(
      "F0 F1 F2 F3 F4 F5 F6 F7 B0 B1 B2 B3 B4 B5 B6 B7");  // so many held that the rows in backward count for little
  const PolicyOptions options = published(1);
  const PeakRange range = peak_range(s, 1);
  bool beside_others = false;
  std::vector<Treatment> fc1_input;  // under ever larger caps, from the first that fits
  for (int step = -20; step <= 20; ++step) {
    s.cap = range.at(0.05 * step);
    const StaticChoice choice = plan_unified(*StageFactsOf(s), options);
    if (choice.fits) fc1_input.push_back(choice.plan[0].of(T::fc1_input));
    beside_others |= choice.fits && choice.plan[0].of(T::fc1_input) == Treatment::recompute &&
                     choice.plan[0] != least_mitigations(BlockKind::moe);
  }
  EXPECT_TRUE(beside_others) << "full recompute is not the only plan that dispatches again";
  ASSERT_FALSE(fc1_input.empty());
  EXPECT_EQ(fc1_input.front(), Treatment::recompute);
  EXPECT_EQ(fc1_input.back(), Treatment::keep);
  const auto changes = [](Treatment a, Treatment b) { return a != b; };
  const auto change = std::adjacent_find(fc1_input.begin(), fc1_input.end(), changes);
  ASSERT_NE(change, fc1_input.end());
  EXPECT_EQ(std::adjacent_find(change + 1, fc1_input.end(), changes), fc1_input.end());
}

TEST(Unified, IsInexactWhereItMayQuantize) {
  PolicyOptions options;
  EXPECT_TRUE(make_policy("unified", options)->exact());
  options.quantize = true;
  EXPECT_FALSE(make_policy("unified", options)->exact());
  StaticStage s = dense_stage(1, "F0 F1 B0 B1");
  s.host_cap = Bytes(0);
  s.machine.launch = Seconds(0);
  s.machine.peak_flops = 1e6;  // products are slow, casts are not
  // Norm and SwiGLU outputs are computed again first, and free 2 x 256 + 256.
  EXPECT_TRUE(plan(s, 4288 - 768, options).plan[0].quantize.empty());
  EXPECT_EQ(plan(s, 4287 - 768, options).plan[0].quantize, TensorSet{T::mlp_fc1_output});
}

PlannerUnderTest unified(GreedyChoice choice) {
  PolicyOptions options = published(2.2);
  options.choice = choice;
  const auto least = [](const StageFacts& facts) {
    std::vector<Mitigations> full, keep(facts.blocks.size(), Mitigations::keep_all());
    for (const StageBlock& block : facts.blocks) full.push_back(least_mitigations(block.kind));
    return std::vector<std::vector<Mitigations>>{keep, full};
  };
  return {"unified", options, [options](const StageFacts& facts) { return plan_unified(facts, options); },
          [](double load) { return std::max(load, 2.2); }, least};
}

TEST(Unified, FitsWhereverRecomputingEverythingFits) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) expect_fits_if_the_least_does(unified(GreedyChoice::greedy), seed);
  for (std::uint64_t seed = 60; seed < 64; ++seed) expect_fits_if_the_least_does(unified(GreedyChoice::ratio), seed);
}

TEST(Unified, ALargerCapNeverMakesASlowerPlan) {
  for (std::uint64_t seed = 100; seed < 110; ++seed)
    expect_larger_caps_are_never_slower(unified(GreedyChoice::greedy), seed);
  for (std::uint64_t seed = 110; seed < 112; ++seed)
    expect_larger_caps_are_never_slower(unified(GreedyChoice::ratio), seed);
}

}  // namespace
}  // namespace spillway
