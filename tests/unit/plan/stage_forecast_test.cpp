// Stages with several model chunks: which layers they hold and what their books say, by hand.
#include "plan/stage_forecast.hpp"

#include <gmock/gmock.h>

#include <numeric>

namespace spillway {
namespace {

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

/// The same layers in so many equal chunks.
MemorySetup with_chunks(MemorySetup setup, int chunks) {
  auto& layers = setup.stage.layers_of_pieces;
  const std::int64_t of_piece = layers.front() / chunks;
  layers.assign(layers.size() * static_cast<std::size_t>(chunks), of_piece);
  return setup;
}

Bytes static_memory(const MemorySetup& setup, int stage) {
  ByteLedger ledger(setup.limits.alignment);
  add_static_memory(ledger, stage_layout(setup, stage).elements, setup.stage.shape.bytes_per_element);
  return ledger.live();
}

TEST(Chunks, DealTheLayersOverTheStagesInTurn) {
  const auto listing = [](const MemorySetup& setup, int stage) {
    std::string text;
    int chunk = -1;
    for (const StageBlock& block : stage_layout(setup, stage).blocks) {
      if (block.chunk != chunk) text += '|';
      chunk = block.chunk;
      text +=
          block.layer < 0 ? fmt::format(" {}", name(block.kind)) : fmt::format(" {}{}", name(block.kind), block.layer);
    }
    return text;
  };
  const MemorySetup even = with_chunks(mixed({4, 4}, false), 2);
  EXPECT_EQ(listing(even, 0), "| synthetic_input dense0 moe1| moe4 moe5");
  EXPECT_EQ(listing(even, 1), "| moe2 moe3| moe6 moe7 square_loss");
  MemorySetup uneven = even;
  uneven.stage.layers_of_pieces = {1, 3, 2, 2};
  EXPECT_EQ(listing(uneven, 0), "| synthetic_input dense0| moe4 moe5");
  EXPECT_EQ(listing(uneven, 1), "| moe1 moe2 moe3| moe6 moe7 square_loss");
}

TEST(Chunks, ParametersOfAllStagesAddUpToTheModel) {
  const MemorySetup setup = with_chunks(mixed({4, 4}), 4);
  std::int64_t sum = 0;
  for (int stage = 0; stage < 2; ++stage) {
    const RankElements e = stage_layout(setup, stage).elements;
    sum += e[0].elements() + e[1].elements() * setup.stage.grid.expert_parallel;
  }
  EXPECT_EQ(sum, count_parameters(setup.stage.shape).total());
}

/// Bytes beyond static memory.
Bytes moving(const MemorySetup& setup, int stage, std::string_view policy) {
  return StageForecast(setup, stage, find_policy(policy)).books(0).ledger().peak() - static_memory(setup, stage);
}

TEST(Chunks, PairsOfMicroBatchAndChunkByHand) {
  // Dense layers whose bytes step_plan_test adds up: keep leaves 1824 of a layer; its backward pass adds 128 + 512.
  MemorySetup setup;
  ModelShape& s = setup.stage.shape;
  s.hidden_size = 8;
  s.num_attention_heads = s.num_key_value_heads = 2;
  s.head_dim = 4;
  s.num_hidden_layers = s.first_k_dense_replace = 4;
  s.intermediate_size = 16;
  s.head = false;
  setup.stage.sequence_length = 4;
  setup.stage.grid.pipeline_parallel = 2;
  setup.stage.layers_of_pieces = {1, 1, 1, 1};
  setup.micro_batches = 4;
  setup.limits.alignment = Bytes(1);
  // Groups of 2: stage 0 runs 2 + 2 forwards first and holds 5 pairs of one layer each, stage 1 runs 2 and holds 3.
  EXPECT_EQ(moving(setup, 0, "keep"), Bytes(5 * 1824 + 128 + 512));
  EXPECT_EQ(moving(setup, 1, "keep"), Bytes(3 * 1824 + 128 + 512));
  // full keeps inputs: four or two of them beside the layer that is being recomputed.
  EXPECT_EQ(moving(setup, 0, "full"), Bytes(4 * 128 + 1824 + 128 + 512));
  EXPECT_EQ(moving(setup, 1, "full"), Bytes(2 * 128 + 1824 + 128 + 512));
  // Without interleaving: two layers of two micro-batches on stage 0.
  setup.stage.layers_of_pieces = {2, 2};
  EXPECT_EQ(moving(setup, 0, "keep"), Bytes(4 * 1824 + 128 + 512));
}

StepPlan plan_of(const MemorySetup& setup, int stage, Policy& policy) {
  const StageLayout layout = stage_layout(setup, stage);
  return StepPlan({layout.blocks, layout.order, layout.elements, setup.limits, setup.machine, setup.margin}, policy);
}

TEST(StageForecast, OfOneChunkIsTheForecastOfTheRun) {
  for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine})
    for (const bool head : {true, false})
      for (const char* name : {"oracle", "keep", "selective", "full"})
        for (int stage = 0; stage < 4; ++stage) {
          const MemorySetup setup = mixed({2, 1, 1, 2}, head, inventory);
          const auto policy = make_policy(name);
          StepPlan plan = plan_of(setup, stage, *policy);
          const Books run =
              forecast_memory(plan, [](int, const StageBlock& b) { return balanced_rows(b.context, 1.5); });
          const Books forecast = StageForecast(setup, stage, find_policy(name)).books(72);
          ASSERT_EQ(forecast.ledger(), run.ledger()) << name << ", stage " << stage;
          ASSERT_EQ(forecast.host(), run.host()) << name << ", stage " << stage;
        }
}

TEST(StageForecast, PeaksFromFootprintsAreThoseOfTheBooks) {
  for (const int chunks : {1, 2, 4})
    for (const char* name : {"oracle", "keep", "selective", "full"})
      for (int stage = 0; stage < 2; ++stage)
        for (const std::int64_t rows : {0, 1, 48, 96}) {
          const MemorySetup setup = with_chunks(mixed({4, 4}, true, Inventory::with_combine), chunks);
          StageForecast forecast(setup, stage, find_policy(name));
          const Books books = forecast.books(rows);
          ASSERT_EQ(forecast.peak(rows), (MemoryPeak{books.ledger().peak(), books.host().peak()}))
              << name << ", stage " << stage << ", chunks " << chunks << ", rows " << rows;
        }
}

/// Offloads q, k, v whatever memory there is.
class Offloading final : public Policy {
 public:
  Mitigations decide(const Situation&) override {
    Mitigations m = Mitigations::keep_all();
    m.set(Tensor::qkv, Treatment::offload);
    return m;
  }
};

TEST(StageForecast, CountsTheHostTier) {
  const PolicyEntry entry{"offloading", "", [](const PolicyOptions&) -> std::unique_ptr<Policy> {
                            return std::make_unique<Offloading>();
                          }};
  const MemorySetup setup = mixed();
  Offloading policy;
  StepPlan plan = plan_of(setup, 0, policy);
  const Books run = forecast_memory(plan, [](int, const StageBlock& b) { return balanced_rows(b.context, 1); });
  StageForecast forecast(setup, 0, entry);
  EXPECT_EQ(forecast.books(48).ledger(), run.ledger());
  EXPECT_EQ(forecast.books(48).host(), run.host());
  EXPECT_EQ(forecast.peak(48), (MemoryPeak{run.ledger().peak(), run.host().peak()}));
  EXPECT_EQ(forecast.peak(48).host, Bytes((4 * 2 - 1) * 24 * 3 * 64 * 4));  // F3 runs beside the first reload of B0
}

/// Long sequences, so that activations outweigh the buffer of the gradient reduction.
MemorySetup long_sequences(std::vector<std::int64_t> layers) {
  MemorySetup setup = mixed(std::move(layers), false);
  setup.stage.sequence_length = 2400;
  return setup;
}

/// Halfway between what keeping everything and what the least takes at balance.
MemorySetup tight(std::vector<std::int64_t> layers) {
  MemorySetup setup = long_sequences(std::move(layers));
  const Bytes keep = StageForecast(setup, 0, find_policy("keep")).peak(4800).device;
  setup.limits.cap = Bytes((keep.value + least_bytes(setup, 0).value) / 2);
  return setup;
}

TEST(StageForecast, OfAPolicyThatFollowsTheLoadIsTheForecastOfTheRun) {
  const MemorySetup setup = tight({2, 1, 1, 2});
  for (const double load : {1.0, 1.5, 2.0}) {
    const auto policy = make_policy("flexible");
    StepPlan plan = plan_of(setup, 0, *policy);
    const Books run =
        forecast_memory(plan, [load](int, const StageBlock& b) { return balanced_rows(b.context, load); });
    StageForecast forecast(setup, 0, find_policy("flexible"));
    const auto rows = static_cast<std::int64_t>(4800 * load);
    EXPECT_EQ(forecast.books(rows).ledger(), run.ledger()) << load;
    EXPECT_EQ(forecast.peak(rows), (MemoryPeak{run.ledger().peak(), run.host().peak()})) << load;
    EXPECT_LE(forecast.peak(rows).device, setup.limits.cap) << load;
  }
}

TEST(FollowsLoad, TellsPoliciesThatDecideAfterTheGate) {
  for (const char* name : {"oracle", "keep", "selective", "full", "kuai", "adapipe", "unified"})
    EXPECT_FALSE(follows_load(*make_policy(name))) << name;
  for (const char* name : {"flexible", "paged"}) EXPECT_TRUE(follows_load(*make_policy(name))) << name;
}

TEST(FollowsLoad, OthersDecideAtTheHighestLoadWhatTheyDecideAtBalance) {
  for (const PolicyEntry& entry : policy_table()) {
    const auto policy = entry.make({});
    if (follows_load(*policy)) continue;
    const MemorySetup setup = tight({2, 1, 1, 2});
    StepPlan plan = plan_of(setup, 0, *policy);
    std::vector<const BlockProgram*> decided[2];
    for (const double load : {1.0, 2.0}) {
      forecast_memory(plan, [load](int, const StageBlock& b) { return balanced_rows(b.context, load); });
      for (int mb = 0; mb < setup.micro_batches; ++mb)
        for (int b = 0; b < 3; ++b) decided[load > 1].push_back(&plan.program(mb, b));
    }
    EXPECT_EQ(decided[0], decided[1]) << entry.name;
  }
}

TEST(LeastBytes, AreWhatTheBooksOfTheRunSay) {
  const MemorySetup setup = long_sequences({2, 1, 1, 2});
  for (int stage = 0; stage < 4; ++stage) {
    const auto policy = make_policy("full");
    EXPECT_EQ(least_bytes(setup, stage), plan_of(setup, stage, *policy).memory().forecast()) << stage;
  }
}

TEST(LeastBytes, CountTheReceiveBufferOfTheGradientReduction) {
  MemorySetup setup = mixed();
  setup.stage.sequence_length = 1;  // hardly any activations
  const RankElements elements = stage_layout(setup, 1).elements;
  EXPECT_EQ(least_bytes(setup, 1),
            static_memory(setup, 1) + std::max(reduction_buffer(elements[0]), reduction_buffer(elements[1])));
}

TEST(LeastBytes, WithSeveralChunksCountTheInputsOfEveryPair) {
  MemorySetup setup = long_sequences({4, 4});
  setup.micro_batches = 6;
  const Bytes whole = least_bytes(setup, 1);  // one micro-batch: four inputs
  setup = with_chunks(setup, 2);              // groups of two: three pairs of two inputs each
  EXPECT_EQ(least_bytes(setup, 1) - whole, Bytes(2 * 2400 * 64 * 4));
}

}  // namespace
}  // namespace spillway
