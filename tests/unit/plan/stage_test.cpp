// What a stage holds: blocks, layer numbers, elements.
#include "plan/program/buckets.hpp"

#include <gtest/gtest.h>

#include <string>

namespace spillway {
namespace {

/// Seven layers, the first of them dense, on stages of 3, 2 and 2.
StageSetup seven_layers(bool head = true) {
  StageSetup setup;
  setup.shape.num_hidden_layers = 7;
  setup.shape.first_k_dense_replace = 1;
  setup.shape.intermediate_size = 96;
  setup.shape.shared_expert_intermediate_size = 40;
  setup.shape.head = head;
  setup.grid = {3, 4, 1, 2};
  setup.sequence_length = 16;
  setup.micro_batch_size = 2;
  setup.layers_of_pieces = {3, 2, 2};
  return setup;
}

std::string listing(const StageSetup& setup, int stage) {
  std::string text;
  for (const StageBlock& b : stage_blocks(setup, stage)) {
    if (!text.empty()) text += ' ';
    text += name(b.kind);
    if (b.layer >= 0) text += std::to_string(b.layer);
  }
  return text;
}

TEST(StageBlocks, FirstMiddleAndLastStageNumberLayersOverTheWholeModel) {
  EXPECT_EQ(listing(seven_layers(), 0), "embedding dense0 moe1 moe2");
  EXPECT_EQ(listing(seven_layers(), 1), "moe3 moe4");
  EXPECT_EQ(listing(seven_layers(), 2), "moe5 moe6 head");
}

TEST(StageBlocks, WithoutHeadNoiseComesInAndASquareLossEnds) {
  EXPECT_EQ(listing(seven_layers(false), 0), "synthetic_input dense0 moe1 moe2");
  EXPECT_EQ(listing(seven_layers(false), 1), "moe3 moe4");
  EXPECT_EQ(listing(seven_layers(false), 2), "moe5 moe6 square_loss");
}

TEST(StageBlocks, ASingleStageHoldsEverything) {
  StageSetup setup = seven_layers();
  setup.grid.pipeline_parallel = 1;
  setup.layers_of_pieces = {7};
  EXPECT_EQ(listing(setup, 0), "embedding dense0 moe1 moe2 moe3 moe4 moe5 moe6 head");
}

TEST(StageBlocks, ContextsCarryTheMicroBatchTheGridAndEachLayersMlp) {
  const auto blocks = stage_blocks(seven_layers(), 0);
  EXPECT_EQ(blocks[1].context.mlp_size, 96);  // dense
  EXPECT_EQ(blocks[2].context.mlp_size, 40);  // shared expert
  EXPECT_EQ(blocks[2].context.tokens(), 32);
  EXPECT_EQ(blocks[2].context.local_experts(), 4);
}

TEST(RankElements, SumTheStagesParametersByGroupAndShareThemOverTheRightRanks) {
  const StageSetup setup = seven_layers();
  const ModelShape& s = setup.shape;
  const std::int64_t h = s.hidden_size, attention = h * s.qkv_size() + s.query_size() * h + 2 * h;
  const std::int64_t moe = attention + h * s.num_experts + 3 * h * 40;
  const RankElements middle = rank_elements(stage_blocks(setup, 1), Grid(setup.grid));
  EXPECT_EQ(middle[0].elements(), 2 * moe);
  EXPECT_EQ(middle[0].shards, 4);                                            // data parallel
  EXPECT_EQ(middle[1].elements(), 2 * 4 * 3 * h * s.moe_intermediate_size);  // half of the 8 experts
  EXPECT_EQ(middle[1].shards, 2);                                            // expert replicas
  const RankElements first = rank_elements(stage_blocks(setup, 0), Grid(setup.grid));
  EXPECT_EQ(first[0].elements(), s.vocab_size * h + attention + 3 * h * 96 + 2 * moe);
  const RankElements last = rank_elements(stage_blocks(setup, 2), Grid(setup.grid));
  EXPECT_EQ(last[0].elements(), 2 * moe + h + h * s.vocab_size);
}

// Reported elsewhere: 30 layers on 4 stages trained 28.
TEST(Reports01, ParametersOfUnevenStagesAddUpToTheModel) {
  const StageSetup setup = seven_layers();
  std::int64_t sum = 0;
  for (int stage = 0; stage < 3; ++stage) {
    const RankElements e = rank_elements(stage_blocks(setup, stage), Grid(setup.grid));
    sum += e[0].elements() + e[1].elements() * setup.grid.expert_parallel;
  }
  EXPECT_EQ(sum, count_parameters(setup.shape).total());
}

}  // namespace
}  // namespace spillway
