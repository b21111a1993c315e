// AdaPipe's plan: the knapsack against every subset, worked by hand, and its promises at random.
#include "plan/cost/operator_cost.hpp"
#include "plan/policy/knapsack.hpp"
#include "static_properties.hpp"

namespace spillway {
namespace {

using T = Tensor;

/// The best value of all subsets within a weight.
Seconds best_of_subsets(const std::vector<KnapsackItem>& items, Bytes weight) {
  Seconds best;
  for (unsigned subset = 0; subset < 1u << items.size(); ++subset) {
    KnapsackItem sum{};
    for (std::size_t i = 0; i < items.size(); ++i)
      if ((subset >> i & 1) != 0) sum = {sum.weight + items[i].weight, sum.value + items[i].value};
    if (sum.weight <= weight) best = std::max(best, sum.value);
  }
  return best;
}

TEST(Knapsack, FindsTheBestOfEverySubsetForEveryCapacity) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Draw draw(seed);
    std::vector<KnapsackItem> items;
    for (int i = 0; i < 9; ++i) items.push_back({Bytes(64 * (1 + draw.below(40))), Seconds(draw.uniform(0.1, 5))});
    const auto solutions = Knapsack(items).solutions();
    Bytes capacity;
    for (const KnapsackItem& item : items) capacity += item.weight;
    for (const Knapsack::Solution& s : solutions) {
      // From here down to its own weight no capacity can do better.
      ASSERT_NEAR(s.value.value, best_of_subsets(items, capacity).value, 1e-12) << "seed " << seed;
      ASSERT_NEAR(s.value.value, best_of_subsets(items, s.weight).value, 1e-12) << "seed " << seed;
      capacity = s.weight - Bytes(1);
    }
    ASSERT_EQ(solutions.back().weight, Bytes(0));
  }
}

TEST(Knapsack, RoundsWeightsUpWhereTheirDivisorIsTooSmall) {
  // Ten steps for 1000 bytes: 150 and 200 take two of them, 650 takes seven.
  const std::vector<KnapsackItem> items = {{Bytes(150), Seconds(1)},
                                           {Bytes(200), Seconds(1.5)},
                                           {Bytes(650), Seconds(9)}};
  std::vector<std::int64_t> rounded, exact;
  for (const Knapsack::Solution& s : Knapsack(items, 10).solutions()) rounded.push_back(s.weight.value);
  for (const Knapsack::Solution& s : Knapsack(items, 20).solutions()) exact.push_back(s.weight.value);
  EXPECT_EQ(rounded, (std::vector<std::int64_t>{1000, 850, 650, 350, 200, 0}));
  EXPECT_EQ(exact, (std::vector<std::int64_t>{1000, 850, 800, 650, 350, 200, 150, 0}));  // their divisor is 50
}

TensorSet dropped(const StaticChoice& choice) {
  TensorSet saved;
  for (const T t : saved_tensors(BlockKind::dense, {})) saved.insert(t);
  return saved - choice.plan[0].keep;
}

TEST(AdaPipe, OneLayerByHand) {
  StaticStage s = dense_stage(1, "F0 F1 B0 B1");
  s.machine.launch = Seconds(0);
  s.machine.peak_flops = s.machine.memory_bandwidth = 1e9;
  s.machine.gemm_efficiency = 1;
  const auto at = [&](std::int64_t activations) {
    s.cap = s.fixed() + Bytes(activations);
    return plan_adapipe(*StageFactsOf(s));
  };
  // Seconds of units, bytes at 1e9/s: norm 128 + 32 + 128; attention 384 + 128 + 32; SwiGLU 512 + 256; qkv with its
  // weight and the rotary pass 128 + 768 + 384 + 512. FLOPs at 1e9/s: fc1 2 x 4 x 8 x 32.
  const double norm = 288e-9, attention = 544e-9, swiglu = 768e-9, qkv = 1792e-9, fc1 = 2048e-9;
  EXPECT_NEAR(at(0).added.value, 2 * (2 * norm + attention + swiglu + qkv + fc1), 1e-15);

  // 2 x 1824 + 128 + 512 at the first backward pass.
  EXPECT_EQ(dropped(at(4288)), TensorSet{});
  // A norm's output frees 128 in the micro-batch that waits, and 128 in the one in backward, which needs it later.
  EXPECT_EQ(at(4287).peak.device, s.fixed() + Bytes(4288 - 2 * 128));
  EXPECT_NEAR(at(4287).added.value, 2 * norm, 1e-15);
  // Two norms take 576 ns; attention output and log-sum-exp free 2 x 160 in 544 ns; SwiGLU's output only 256, once.
  EXPECT_EQ(dropped(at(4031)), (TensorSet{T::attention_output, T::log_sum_exp}));
  EXPECT_EQ(at(4031).peak.device, s.fixed() + Bytes(4288 - 2 * 160));
  EXPECT_EQ(dropped(at(3967)), (TensorSet{T::attention_norm_output, T::mlp_norm_output}));
  EXPECT_EQ(at(3967).peak.device, s.fixed() + Bytes(4288 - 4 * 128));
  EXPECT_NEAR(at(3775).added.value, 2 * (norm + attention), 1e-15);
}

/// A random stage with one transformer layer, and the units of that layer.
struct OneLayer {
  explicit OneLayer(std::uint64_t seed) : stage(random_stage(seed)) {
    stage.setup.layers_of_pieces[static_cast<std::size_t>(stage.stage)] = 1;
    stage.setup.shape.num_hidden_layers =
        std::accumulate(stage.setup.layers_of_pieces.begin(), stage.setup.layers_of_pieces.end(), std::int64_t{0});
    const auto blocks = stage.blocks();
    while (blocks[layer].kind != BlockKind::moe && blocks[layer].kind != BlockKind::dense) ++layer;
    const StageBlock& block = blocks[layer];
    TensorSet seen{T::block_input, T::mlp_norm_input};
    TensorSet saved;
    for (const T t : saved_tensors(block.kind, block.context)) saved.insert(t);
    for (const OperatorRow& row : operator_table(block.kind, block.context)) {
      TensorSet unit;
      for (const T t : row.forward.writes)
        if (saved.contains(t) && !seen.contains(t)) unit.insert(t);
      seen = seen | unit;
      if (!unit.empty()) units.push_back(unit);
    }
  }
  StaticStage stage;
  std::size_t layer = 0;
  std::vector<TensorSet> units;

  /// Every choice of units that fits, and the seconds that the programs of the fastest repeat.
  std::optional<Seconds> fastest(const StageFacts& facts) const {
    std::optional<Seconds> best;
    for (unsigned subset = 0; subset < 1u << units.size(); ++subset) {
      std::vector<Mitigations> plan(facts.blocks.size(), Mitigations::keep_all());
      plan[layer].keep = {T::block_input, T::mlp_norm_input};
      for (std::size_t i = 0; i < units.size(); ++i)
        if ((subset >> i & 1) != 0) plan[layer].keep = plan[layer].keep | units[i];
      if (static_peak(facts, plan, facts.load).device > facts.books.cap()) continue;
      const Seconds again = recompute_seconds(facts, facts.blocks[layer], plan[layer], facts.load);
      if (!best || again < *best) best = again;
    }
    return best;
  }
};

TEST(AdaPipe, IsTheFastestChoiceOfUnitsUnlessBuffersDecide) {
  // The knapsack counts what units hold from forward to backward. What a backward pass needs on top depends on the choice
  // too, so now and then (3 of 24 here) another choice fits that is faster: never the other way round, and seldom by much.
  int fitting = 0, fastest = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    OneLayer one(seed);
    one.stage.cap = peak_range(one.stage, one.stage.load).at(Draw(seed + 99).uniform(0, 1));
    const StageFactsOf facts(one.stage);
    const StaticChoice choice = plan_adapipe(*facts);
    if (!choice.fits) continue;
    const Seconds best = static_cast<double>(micro_batches(*facts)) * one.fastest(*facts).value();
    ++fitting;
    fastest += choice.added.value <= best.value * (1 + 1e-9) ? 1 : 0;
    ASSERT_GE(choice.added.value, best.value * (1 - 1e-9)) << "seed " << seed;
    ASSERT_LE(choice.added.value, best.value * 1.5) << "seed " << seed;
  }
  EXPECT_GE(fitting, 20);
  EXPECT_GE(10 * fastest, 8 * fitting);
}

PlannerUnderTest adapipe() {
  const auto least = [](const StageFacts& facts) {
    std::vector<Mitigations> none, all(facts.blocks.size(), Mitigations::keep_all());
    for (const StageBlock& block : facts.blocks) {
      none.push_back(least_mitigations(block.kind));
      if (none.back() != Mitigations::keep_all()) none.back().keep.insert(T::mlp_norm_input);
    }
    return std::vector<std::vector<Mitigations>>{none, all};
  };
  return {"adapipe", {}, plan_adapipe, [](double load) { return load; }, least};
}

TEST(AdaPipe, FitsWhereverSavingNoUnitFits) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) expect_fits_if_the_least_does(adapipe(), seed);
}

TEST(AdaPipe, ALargerCapNeverMakesASlowerPlan) {
  for (std::uint64_t seed = 100; seed < 130; ++seed) expect_larger_caps_are_never_slower(adapipe(), seed);
}

TEST(AdaPipe, SecondsOfAPlanAreThoseThatItsProgramsRepeatAndNothingLeavesTheDevice) {
  for (std::uint64_t seed = 200; seed < 240; ++seed) {
    const StaticStage s = random_capped_stage(seed, adapipe());
    const StageFactsOf facts(s);
    const StaticChoice choice = plan_adapipe(*facts);
    Seconds again;
    for (std::size_t b = 0; b < choice.plan.size(); ++b) {
      again += recompute_seconds(*facts, facts->blocks[b], choice.plan[b], s.load);
      ASSERT_TRUE(choice.plan[b].offload.empty());
      ASSERT_TRUE(choice.plan[b].keep.contains(T::block_input));
      ASSERT_TRUE(choice.plan[b].keep.contains(T::mlp_norm_input));
    }
    const double expected = static_cast<double>(micro_batches(*facts)) * again.value;
    ASSERT_NEAR(choice.added.value, expected, 1e-9 * expected + 1e-15) << "seed " << seed;
  }
}

}  // namespace
}  // namespace spillway
