// The table of memory against the published shapes, against hand-worked stages, and against plain bisection.
#include "plan/memory_table.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "workload/shape/operator_table.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

/// 423B-A30B on 512 devices as published: PP 8, DP 32, TP 2, EP 64, two chunks of two layers on every stage.
MemorySetup published_423b(Inventory inventory = Inventory::lean) {
  MemorySetup setup;
  ModelShape& s = setup.stage.shape;
  s.hidden_size = 8192;
  s.moe_intermediate_size = 4096;
  s.num_experts = 128;
  s.num_experts_per_tok = 6;
  s.num_hidden_layers = 32;
  s.num_attention_heads = s.num_key_value_heads = 64;
  s.head_dim = 128;
  s.head = false;
  s.bytes_per_element = 2;
  s.inventory = inventory;
  setup.stage.grid = {8, 32, 2, 64};
  setup.stage.sequence_length = 4096;
  setup.stage.layers_of_pieces.assign(16, 2);
  setup.micro_batches = 56;
  setup.margin = 1.15;
  return setup;
}
constexpr Bytes mebibyte{std::int64_t{1} << 20};

Bytes static_memory(const MemorySetup& setup, int stage) {
  ByteLedger ledger(setup.limits.alignment);
  add_static_memory(ledger, stage_layout(setup, stage).elements, setup.stage.shape.bytes_per_element);
  return ledger.live();
}

TEST(Published423B, StaticMemoryOfARankIs1792GigabytesAndItsRoutersAndNorms) {
  // Experts: 2 + 4 + 12 bytes per parameter; attention: 2 + 4 + 12 / 32, sharded over data-parallel ranks; routers and norms,
  // which tensor-parallel ranks hold copies of: 2 + 4 + 12 / 64.
  const std::int64_t experts = 4LL * 2 * 3 * 8192 * 4096, attention = 4LL * 4 * 8192 * 8192 / 2;
  const std::int64_t routers_and_norms = 4LL * (8192 * 128 + 2 * 8192);
  const double matrices = static_cast<double>(experts) * 18 + static_cast<double>(attention) * 6.375;
  EXPECT_NEAR(matrices, 17.92e9, 0.005e9);
  for (int stage = 0; stage < 8; ++stage)
    EXPECT_NEAR(static_cast<double>(static_memory(published_423b(), stage).value),
                matrices + static_cast<double>(routers_and_norms) * 6.1875, 8 * 256)
        << stage;
}

TEST(Published423B, ALayerSaves672MebibytesInTheSevenTensorsOfTheFigure) {
  const BlockContext c = stage_layout(published_423b(), 3).blocks[0].context;
  const ExpertRows balanced = balanced_rows(c, 1);
  Bytes sum;
  for (const Tensor t : {Tensor::block_input, Tensor::qkv, Tensor::attention_output, Tensor::mlp_norm_input,
                         Tensor::fc1_input, Tensor::fc1_output, Tensor::fc2_input})
    sum += bytes(t, c, balanced);
  EXPECT_EQ(sum, 672 * mebibyte);
  const auto saved = [&](Inventory inventory) {
    const BlockContext context = stage_layout(published_423b(inventory), 3).blocks[0].context;
    return mebibytes(saved_activation_bytes(BlockKind::moe, context, balanced));
  };
  EXPECT_DOUBLE_EQ(saved(Inventory::lean), 738.5);
  EXPECT_DOUBLE_EQ(saved(Inventory::standard), 802.5);
  EXPECT_DOUBLE_EQ(saved(Inventory::with_combine), 994.5);
}

TEST(Published423B, TheLoadAxisEndsWhereDistinctExpertsEnd) {
  const LoadAxis axis = load_axis(published_423b());
  EXPECT_EQ(axis.balanced, 12288);
  EXPECT_EQ(axis.most, 262144);
  EXPECT_THAT(axis.loads, ElementsAre(1.0, 1.15, 1.5, 2.0, 2.6, 64.0 * 2 / 6));
  EXPECT_EQ(axis.rows(1.15), 14132);  // 14131.2
  EXPECT_EQ(axis.rows(axis.bound()), 262144);
}

TEST(Published423B, KeepHoldsElevenAndAHalfMicroBatchesOnTheFirstStage) {
  const MemorySetup setup = published_423b();
  const Bytes activations = StageForecast(setup, 0, find_policy("keep")).books(12288).ledger().activation_peak();
  const Bytes pair(2 * 1477 * mebibyte.value / 2);  // two layers of 738.5 MiB
  EXPECT_GE(activations, 23 * pair);
  EXPECT_LE(activations, 23 * pair + 800 * mebibyte);  // and what a running layer adds
}

/// Everything a model can have, four stages of unequal length, two expert ranks.
MemorySetup mixed(std::vector<std::int64_t> layers = {2, 1, 1, 2}, bool head = true,
                  Inventory inventory = Inventory::lean) {
  MemorySetup setup;
  setup.stage.shape.num_hidden_layers = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
  setup.stage.shape.first_k_dense_replace = 1;
  setup.stage.shape.intermediate_size = 24;
  setup.stage.shape.shared_expert_intermediate_size = 12;
  setup.stage.shape.inventory = inventory;
  setup.stage.shape.head = head;
  setup.stage.grid = {static_cast<int>(layers.size()), 4, 1, 2};
  setup.stage.sequence_length = 24;
  setup.stage.layers_of_pieces = std::move(layers);
  setup.micro_batches = 5;
  setup.margin = 1.15;
  return setup;
}

/// Policies whose forecasts are quick, one that has no cap and one that adapts.
std::vector<PolicyEntry> few_policies() {
  std::vector<PolicyEntry> few;
  for (const char* name : {"oracle", "keep", "selective", "full", "flexible"}) few.push_back(find_policy(name));
  return few;
}

/// The same under a cap.
MemorySetup capped(std::int64_t cap) {
  MemorySetup setup = mixed();
  setup.limits.cap = Bytes(cap);
  return setup;
}

TEST(MemoryTable, EveryStageOfAnUnevenSplitHasItsOwnForecast) {
  const MemorySetup setup = mixed();
  const auto policies = few_policies();
  const MemoryTable table = memory_table(setup, policies);
  ASSERT_EQ(table.policies.size(), policies.size());
  for (const PolicyPeaks& policy : table.policies) {
    ASSERT_EQ(policy.stages.size(), 4u);
    for (int stage = 0; stage < 4 && policy.no_forecast.empty(); ++stage)
      for (std::size_t i = 0; i < table.axis.loads.size(); ++i) {
        const auto made = make_policy(policy.policy.name);
        const auto blocks = stage_blocks(setup.stage, stage);
        StepPlan plan({blocks, one_forward_one_backward({4, 5})[stage], rank_elements(blocks, Grid(setup.stage.grid)),
                       setup.limits, setup.machine, setup.margin},
                      *made);
        const Books expected = forecast_memory(plan, [&](int, const StageBlock& b) {
          return balanced_rows(b.context, table.axis.loads[i]);
        });
        ASSERT_EQ(policy.stages[stage].at[i], (MemoryPeak{expected.ledger().peak(), expected.host().peak()}))
            << policy.policy.name << ", stage " << stage << ", load " << i;
      }
  }
}

TEST(MemoryTable, OneRowMoreThanFitsDoesNotFit) {
  MemorySetup setup = mixed();
  setup.stage.sequence_length = 2400;  // activations outweigh the buffer of the gradient reduction
  int inside = 0;
  for (const std::int64_t rows : {0, 100, 4799, 4800, 7000}) {
    setup.limits.cap = StageForecast(setup, 1, find_policy("keep")).peak(rows).device;
    const auto policies = few_policies();
    const MemoryTable table = memory_table(setup, policies);
    ASSERT_EQ(table.axis.most, 9600);
    for (const PolicyPeaks& policy : table.policies)
      for (int stage = 0; stage < 4 && policy.obeys_cap && !policy.adapts; ++stage) {
        const std::int64_t most = policy.stages[stage].rows_that_fit.value();
        StageForecast forecast(setup, stage, policy.policy);
        if (most >= 0) {
          EXPECT_TRUE(fits(forecast.peak(most), setup.limits)) << policy.policy.name << ", " << stage << ", " << rows;
        }
        if (most < 9600) {
          EXPECT_FALSE(fits(forecast.peak(most + 1), setup.limits))
              << policy.policy.name << ", " << stage << ", " << rows;
        }
        inside += most >= 0 && most < 9600;
      }
    EXPECT_GE(table.policies[1].stages[1].rows_that_fit, rows);
  }
  EXPECT_GT(inside, 10);
}

/// The peaks of one policy.
PolicyPeaks peaks_of(const MemorySetup& setup, std::string_view name) {
  return memory_table(setup, {&find_policy(name), 1}).policies[0];
}

TEST(MemoryTable, NeverAndNotEvenEmptyAreToldApart) {
  EXPECT_EQ(peaks_of(capped(1 << 30), "keep").rows_that_fit(), 96);  // 24 tokens x 2 choices x 2 ranks: all of them
  EXPECT_EQ(peaks_of(capped(1000), "keep").rows_that_fit(), -1);
  EXPECT_EQ(peaks_of(capped(1000), "oracle").rows_that_fit(), std::nullopt);  // has no cap
}

TEST(MemoryTable, APolicyThatAdaptsFitsAtEveryLoadOrAtNone) {
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t least = least_bytes(mixed(), stage).value;
    EXPECT_EQ(peaks_of(capped(least), "flexible").stages[stage].rows_that_fit, 96);
    EXPECT_EQ(peaks_of(capped(least - 1), "flexible").stages[stage].rows_that_fit, -1);
  }
}

TEST(MemoryTable, APolicyThatFollowsTheLoadIsForecastWhereItIsAsked) {
  MemorySetup setup = capped(260'000);
  EXPECT_NE(peaks_of(setup, "flexible").no_forecast, "");
  EXPECT_NE(peaks_of(setup, "paged").no_forecast, "");
  setup.asked = {"flexible", "paged"};
  for (const char* name : {"flexible", "paged"}) {
    const PolicyPeaks peaks = peaks_of(setup, name);
    EXPECT_EQ(peaks.no_forecast, "");
    for (const StagePeaks& stage : peaks.stages) ASSERT_EQ(stage.at.size(), load_axis(setup).loads.size());
  }
  setup.stage.layers_of_pieces.assign(8, 1);  // two chunks on each of four stages
  setup.stage.shape.num_hidden_layers = 8;
  for (const char* name : {"flexible", "paged", "kuai", "unified", "adapipe", "selective"})
    for (const StagePeaks& stage : peaks_of(setup, name).stages)
      ASSERT_EQ(stage.at.size(), load_axis(setup).loads.size()) << name;
}

TEST(MemoryTable, WorstAndOrdinaryStage) {
  const PolicyPeaks keep = peaks_of(mixed(), "keep");
  for (int stage = 0; stage < 4; ++stage) EXPECT_LE(keep.bytes(stage, 0), keep.bytes(keep.worst_stage(0), 0));
  int smaller = 0;
  for (int stage = 0; stage < 4; ++stage) smaller += keep.bytes(stage, 0) < keep.bytes(keep.ordinary_stage(0), 0);
  EXPECT_EQ(smaller, 1);  // of four, the third largest
}

TEST(LoadAxis, KeepsTheMarginEvenAboveTheBoundAndKnowsDenseModels) {
  MemorySetup alone = mixed();
  alone.stage.grid.expert_parallel = 1;
  EXPECT_THAT(load_axis(alone).loads, ElementsAre(1.0, 1.15));  // one rank holds every expert: bound 1
  EXPECT_EQ(load_axis(alone).rows(1.15), 56);
  MemorySetup dense = mixed();
  dense.stage.shape.first_k_dense_replace = dense.stage.shape.num_hidden_layers;
  EXPECT_EQ(load_axis(dense).balanced, 0);
  EXPECT_DOUBLE_EQ(load_axis(dense).bound(), 1);
}

}  // namespace
}  // namespace spillway
