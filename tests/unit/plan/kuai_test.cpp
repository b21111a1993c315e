// Megatron-Kuai's plan: worked by hand on dense layers, and its promises at random.
#include "static_properties.hpp"

namespace spillway {
namespace {

constexpr Seconds launch{5e-6};  // of every operator and copy here: so small that nothing else counts

PolicyOptions smallest(std::int64_t bytes) {
  PolicyOptions options;
  options.kuai_smallest = Bytes(bytes);
  return options;
}

/// Tensors that a plan offloads, as "fc1_output of block 1".
std::vector<std::string> offloaded(const StaticChoice& choice) {
  std::vector<std::string> list;
  for (std::size_t b = 0; b < choice.plan.size(); ++b)
    for (std::size_t t = 0; t < tensor_count; ++t)
      if (choice.plan[b].offload.contains(static_cast<Tensor>(t)))
        list.push_back(fmt::format("{} {}", name(static_cast<Tensor>(t)), b));
  return list;
}
using Names = std::vector<std::string>;

StaticChoice plan(StaticStage s, std::int64_t activations, const PolicyOptions& options) {
  s.cap = s.fixed() + Bytes(activations);
  return plan_kuai(*StageFactsOf(s), options);
}

TEST(Kuai, OffloadsWholeTensorsLargestFirstAndNoMoreThanTheCapAsks) {
  const StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  // Two layers of two micro-batches, 4 x 1824; the first backward pass adds d_residual and SwiGLU's gradient, 128 + 512.
  EXPECT_EQ(offloaded(plan(s, 7936, smallest(0))), Names{});
  // Then mlp_fc1_output of one layer, of the next, qkv likewise: that of micro-batch 1 is away at the peak.
  EXPECT_EQ(offloaded(plan(s, 7935, smallest(0))), Names{"mlp_fc1_output 0"});
  EXPECT_EQ(offloaded(plan(s, 7424, smallest(0))), Names{"mlp_fc1_output 0"});
  EXPECT_EQ(offloaded(plan(s, 7423, smallest(0))), (Names{"mlp_fc1_output 0", "mlp_fc1_output 1"}));
  EXPECT_EQ(offloaded(plan(s, 6911, smallest(0))), (Names{"qkv 0", "mlp_fc1_output 0", "mlp_fc1_output 1"}));
  const StaticChoice three = plan(s, 6911, smallest(0));
  EXPECT_EQ(three.peak.device, s.fixed() + Bytes(7936 - 512 - 512 - 384));
  // The second layer of micro-batch 0 is back before those of micro-batch 1 leave.
  EXPECT_EQ(three.peak.host, Bytes(2 * (512 + 384) + 512));
  EXPECT_EQ(three.added, Seconds(0));  // three copies of 5 us beside a pass of 80
}

TEST(Kuai, SmallTensorsStay) {
  const StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  EXPECT_EQ(offloaded(plan(s, 6912, smallest(385))), (Names{"mlp_fc1_output 0", "mlp_fc1_output 1"}));
  // Nothing is left to offload: norm and SwiGLU outputs are computed again, 3 operators in 2 layers of 2 micro-batches.
  const StaticChoice ours = plan(s, 6911, smallest(385));
  EXPECT_EQ(offloaded(ours), Names{});
  EXPECT_NEAR(ours.added.value, 12 * launch.value, 1e-12);
  // 3 layers without 128 + 128 + 256, and the one in backward, 1824 + 128 + 512 with two of the three given up.
  EXPECT_EQ(ours.peak.device, s.fixed() + Bytes(3 * 1312 + 2464 - 256));
  EXPECT_EQ(offloaded(plan(s, 7935, smallest(513))), Names{});
}

TEST(Kuai, ExposesWhatTheNeighbouringPassesDoNotHide) {
  StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  s.machine.link_bandwidth = 512 / 100e-6;  // mlp_fc1_output in 100 us
  const PassSeconds passes = pass_seconds(*StageFactsOf(s), 1).front();
  EXPECT_NEAR(passes.forward.value, 16 * launch.value, 1e-12);
  EXPECT_NEAR(passes.backward.value, 16 * launch.value, 1e-12);
  // One tensor, 100 us: out of F0 beside F1, 80 us; out of F1 and into B0 beside 160 us; into B1 beside B0, 80 us.
  const StaticChoice one = plan(s, 7424, smallest(0));
  EXPECT_EQ(offloaded(one), Names{"mlp_fc1_output 0"});
  EXPECT_NEAR(one.added.value, 40e-6, 1e-12);
  // Two, 200 us, would expose 120 + 40 + 40 + 120 us: recomputing 12 operators is faster.
  const StaticChoice two = plan(s, 7423, smallest(0));
  EXPECT_EQ(offloaded(two), Names{});
  EXPECT_NEAR(two.added.value, 12 * launch.value, 1e-12);
}

TEST(Kuai, AMicroBatchThatGoesBackAtOnceHasOnlyItsOwnPassesBesideItsCopies) {
  StaticStage s = dense_stage(3, "F0 B0");
  s.machine.link_bandwidth = 512 / 130e-6;
  // 3 x 1824 + 128 + 512; the second layer is back when the third goes backward, the first is not.
  EXPECT_EQ(offloaded(plan(s, 6112, smallest(0))), Names{});
  const StaticChoice choice = plan(s, 6111, smallest(0));
  EXPECT_EQ(offloaded(choice), Names{"mlp_fc1_output 0"});
  EXPECT_EQ(choice.peak.device, s.fixed() + Bytes(6112 - 512));
  EXPECT_NEAR(choice.added.value, 20e-6, 1e-12);  // each pass is 24 operators, 120 us
}

TEST(Kuai, WhatIsComputedAgainHidesCopiesToo) {
  StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  s.machine.link_bandwidth = 512 / 100e-6;
  // 6144 with norm and SwiGLU outputs computed again, see above. One byte less: mlp_fc1_output leaves as well. Of its
  // 100 us 20 are exposed beside F1, none beside B0, which takes 80 + 6 x 5; that is faster than recomputing all.
  const StaticChoice choice = plan(s, 6143, smallest(0));
  EXPECT_EQ(offloaded(choice), Names{"mlp_fc1_output 0"});
  EXPECT_NEAR(choice.added.value, 12 * launch.value + 20e-6, 1e-12);
}

TEST(Kuai, TheLastBlockOfTheLastStageStays) {
  StaticStage s = dense_stage(1, "F0 F1 B0 B1");
  s.setup.layers_of_pieces = {1, 0, 2};
  s.stage = 2;
  s.cap = Bytes(0);  // whatever can leave does
  const StaticChoice choice = plan_kuai(*StageFactsOf(s), smallest(0));
  ASSERT_EQ(choice.plan.size(), 3u);  // two layers and the loss
  EXPECT_EQ(choice.plan[2].offload, TensorSet{});
  EXPECT_NE(choice.plan[0].offload | choice.plan[1].offload, TensorSet{});
}

TEST(Kuai, OffloadsNoMoreThanTheHostTierTakesAndNothingWhereItIsDeviceMemory) {
  StaticStage s = dense_stage(2, "F0 F1 B0 B1");
  s.host_cap = Bytes(1023);  // mlp_fc1_output of two micro-batches would be 1024
  const StaticChoice full = plan(s, 7935, smallest(0));
  EXPECT_TRUE(full.fits);
  EXPECT_EQ(offloaded(full), Names{});
  s.host_cap = Bytes(1024);
  EXPECT_EQ(offloaded(plan(s, 7935, smallest(0))), Names{"mlp_fc1_output 0"});
  s.machine.shared_memory = true;
  EXPECT_EQ(offloaded(plan(s, 7935, smallest(0))), Names{});
}

PlannerUnderTest kuai() {
  const PolicyOptions options = smallest(600);
  const auto least = [](const StageFacts& facts) {
    std::vector<Mitigations> keep, full;
    for (const StageBlock& block : facts.blocks) {
      keep.push_back(Mitigations::keep_all());
      full.push_back(least_mitigations(block.kind));
    }
    return std::vector<std::vector<Mitigations>>{keep, full};
  };
  return {"kuai", options, [options](const StageFacts& facts) { return plan_kuai(facts, options); },
          [](double load) { return load; }, least};
}

TEST(Kuai, FitsWhereverRecomputingEverythingFits) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) expect_fits_if_the_least_does(kuai(), seed);
}

TEST(Kuai, ALargerCapNeverMakesASlowerPlan) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) expect_larger_caps_are_never_slower(kuai(), seed);
}

}  // namespace
}  // namespace spillway
