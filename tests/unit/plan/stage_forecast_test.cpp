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
  setup.stage.layers_of_stages = std::move(layers);
  setup.micro_batches = 5;
  setup.margin = 1.15;
  return setup;
}

Bytes static_memory(const MemorySetup& setup, int stage) {
  ByteLedger ledger(setup.limits.alignment);
  add_static_memory(ledger, stage_layout(setup, stage).elements, setup.stage.shape.bytes_per_element);
  return ledger.live();
}

TEST(Chunks, DealTheLayersOverTheStagesInTurn) {
  MemorySetup setup = mixed({4, 4}, false);
  setup.chunks = 2;
  const auto listing = [&](int stage) {
    std::string text;
    for (const auto& blocks : stage_layout(setup, stage).chunks) {
      text += '|';
      for (const StageBlock& block : blocks)
        text += block.layer < 0 ? fmt::format(" {}", name(block.kind))
                                : fmt::format(" {}{}", name(block.kind), block.layer);
    }
    return text;
  };
  EXPECT_EQ(listing(0), "| synthetic_input dense0 moe1| moe4 moe5");
  EXPECT_EQ(listing(1), "| moe2 moe3| moe6 moe7 square_loss");
}

TEST(Chunks, ParametersOfAllStagesAddUpToTheModel) {
  MemorySetup setup = mixed({4, 4});
  setup.chunks = 4;
  std::int64_t sum = 0;
  for (int stage = 0; stage < 2; ++stage) {
    const RankElements e = stage_layout(setup, stage).elements;
    sum += e[0].elements + e[1].elements * setup.stage.grid.expert_parallel;
  }
  EXPECT_EQ(sum, count_parameters(setup.stage.shape).total());
}

/// Bytes beyond static memory.
Bytes moving(const MemorySetup& setup, int stage, std::string_view policy) {
  return StageForecast(setup, stage, find_policy(policy)).at(0).ledger().peak() - static_memory(setup, stage);
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
  setup.stage.layers_of_stages = {2, 2};
  setup.chunks = 2;
  setup.micro_batches = 4;
  setup.limits.alignment = Bytes(1);
  // Groups of 2: stage 0 runs 2 + 2 forwards first and holds 5 pairs of one layer each, stage 1 runs 2 and holds 3.
  EXPECT_EQ(moving(setup, 0, "keep"), Bytes(5 * 1824 + 128 + 512));
  EXPECT_EQ(moving(setup, 1, "keep"), Bytes(3 * 1824 + 128 + 512));
  // full keeps inputs: four or two of them beside the layer that is being recomputed.
  EXPECT_EQ(moving(setup, 0, "full"), Bytes(4 * 128 + 1824 + 128 + 512));
  EXPECT_EQ(moving(setup, 1, "full"), Bytes(2 * 128 + 1824 + 128 + 512));
  // Without interleaving: two layers of two micro-batches on stage 0.
  setup.chunks = 1;
  EXPECT_EQ(moving(setup, 0, "keep"), Bytes(4 * 1824 + 128 + 512));
}

StepPlan plan_of(const MemorySetup& setup, int stage, Policy& policy) {
  const StageLayout layout = stage_layout(setup, stage);
  return StepPlan({layout.chunks[0], layout.order, layout.elements, setup.limits, setup.machine, setup.margin}, policy);
}

TEST(Chunks, ForecastOfOneChunkIsTheForecastOfTheRun) {
  for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine})
    for (const bool head : {true, false})
      for (const char* name : {"oracle", "keep", "selective", "full"})
        for (int stage = 0; stage < 4; ++stage) {
          const MemorySetup setup = mixed({2, 1, 1, 2}, head, inventory);
          const auto policy = make_policy(name);
          const RowsOf rows = [](int micro_batch, const StageBlock& b) {
            return ExpertRows{11 * micro_batch + b.layer + 1, 1, {}};
          };
          std::vector<StepPlan> chunk;
          chunk.push_back(plan_of(setup, stage, *policy));
          StepPlan plan = plan_of(setup, stage, *policy);
          ASSERT_EQ(forecast_chunks(chunk, stage_layout(setup, stage), rows).ledger(),
                    forecast_memory(plan, rows).ledger())
              << name << ", stage " << stage;
        }
}

/// Long sequences, so that activations outweigh the buffer of the gradient reduction.
MemorySetup long_sequences(std::vector<std::int64_t> layers) {
  MemorySetup setup = mixed(std::move(layers), false);
  setup.stage.sequence_length = 2400;
  return setup;
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
  setup.chunks = 2;                           // groups of two: three pairs of two inputs each
  EXPECT_EQ(least_bytes(setup, 1) - whole, Bytes(2 * 2400 * 64 * 4));
}

}  // namespace
}  // namespace spillway
