// Ranks and coordinates are two names for one thing, expert groups tile a stage, and wrong sizes are refused.
#include "grid/grid.hpp"

#include <gmock/gmock.h>

#include <set>
#include <vector>

namespace spillway {
namespace {

using ::testing::HasSubstr;

/// All grids with up to 5 stages, 8 data ranks and 4 tensor ranks, with every legal size of the expert group.
std::vector<GridOptions> many_grids() {
  std::vector<GridOptions> grids;
  for (int pipeline = 1; pipeline <= 5; ++pipeline)
    for (int data = 1; data <= 8; ++data)
      for (int tensor = 1; tensor <= 4; ++tensor)
        for (int expert = 1; expert <= data * tensor; ++expert)
          if (data * tensor % expert == 0) grids.push_back({pipeline, data, tensor, expert});
  return grids;
}

std::string refusal(const GridOptions& options, int world) {
  try {
    validate(options, world);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Grid, RanksAndCoordinatesAreABijection) {
  for (const GridOptions& options : many_grids()) {
    const Grid grid(options);
    ASSERT_EQ(grid.ranks(), options.pipeline_parallel * options.data_parallel * options.tensor_parallel);
    std::set<std::vector<int>> seen;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const Coordinates c = grid.coordinates(rank);
      ASSERT_TRUE(c.pipeline >= 0 && c.pipeline < grid.pipeline());
      ASSERT_TRUE(c.data >= 0 && c.data < grid.data());
      ASSERT_TRUE(c.tensor >= 0 && c.tensor < grid.tensor());
      ASSERT_EQ(grid.rank(c.pipeline, c.data, c.tensor), rank);
      seen.insert({c.pipeline, c.data, c.tensor});
    }
    ASSERT_EQ(static_cast<int>(seen.size()), grid.ranks());
  }
}

TEST(Grid, ExpertGroupsTileTheStage) {
  for (const GridOptions& options : many_grids()) {
    const Grid grid(options);
    for (int stage = 0; stage < grid.pipeline(); ++stage) {
      std::set<int> covered;
      for (int replica = 0; replica < grid.expert_replicas(); ++replica)
        for (int expert = 0; expert < grid.expert(); ++expert) {
          const int rank = grid.expert_rank(stage, replica, expert);
          const Coordinates c = grid.coordinates(rank);
          ASSERT_EQ(c.pipeline, stage);
          ASSERT_EQ(c.expert, expert);
          ASSERT_EQ(c.expert_replica, replica);
          covered.insert(rank);
        }
      ASSERT_EQ(static_cast<int>(covered.size()), grid.plane());
      ASSERT_EQ(*covered.begin(), stage * grid.plane());
      ASSERT_EQ(*covered.rbegin(), (stage + 1) * grid.plane() - 1);
    }
  }
}

TEST(Grid, RanksRunTensorFastestThenDataThenPipeline) {
  const Grid grid({2, 3, 2, 6});
  EXPECT_EQ(grid.rank(0, 0, 1), 1);
  EXPECT_EQ(grid.rank(0, 1, 0), 2);
  EXPECT_EQ(grid.rank(1, 0, 0), 6);
  EXPECT_EQ(grid.data_ranks_per_expert_group(), 3);
}

TEST(GridValidate, AcceptsEveryLegalGridAtItsOwnWorldSizeAndWithoutLauncher) {
  for (const GridOptions& options : many_grids()) {
    EXPECT_EQ(refusal(options, Grid(options).ranks()), "accepted");
    EXPECT_EQ(refusal(options, 0), "accepted");
  }
}

// "Expected 8 ranks, got 4", and nobody could see how 8 was computed.
TEST(GridValidate, AWrongRankCountIsRefusedWithTheProductPrinted) {
  const std::string message = refusal({4, 2, 1, 2}, 4);
  EXPECT_THAT(message, HasSubstr("needs 8 ranks"));
  EXPECT_THAT(message, HasSubstr("pipeline_parallel 4 x data_parallel 2 x tensor_parallel 1"));
  EXPECT_THAT(message, HasSubstr("started 4"));
  EXPECT_THAT(message, HasSubstr("start 8 ranks"));
}

TEST(GridValidate, AnExpertGroupThatDoesNotTileTheStageIsRefusedWithTheNearestThatDo) {
  const std::string message = refusal({1, 8, 1, 3}, 0);
  EXPECT_THAT(message, HasSubstr("expert_parallel = 3"));
  EXPECT_THAT(message, HasSubstr("8 ranks of a stage (data_parallel 8 x tensor_parallel 1)"));
  EXPECT_THAT(message, HasSubstr("nearest that do: 2, 4"));
}

TEST(GridValidate, AnExpertGroupLargerThanTheStageNamesTheLargestPossible) {
  EXPECT_THAT(refusal({1, 4, 1, 16}, 0), HasSubstr("nearest that do: 4"));
}

TEST(GridValidate, EverySizeBelowOneIsRefusedByName) {
  EXPECT_THAT(refusal({0, 1, 1, 1}, 0), HasSubstr("pipeline_parallel = 0"));
  EXPECT_THAT(refusal({1, -2, 1, 1}, 0), HasSubstr("data_parallel = -2"));
  EXPECT_THAT(refusal({1, 1, 0, 1}, 0), HasSubstr("tensor_parallel = 0"));
  EXPECT_THAT(refusal({1, 1, 1, 0}, 0), HasSubstr("expert_parallel = 0"));
}

TEST(GridValidate, AProductBeyondThirtyTwoBitsIsRefusedAndDoesNotWrap) {
  EXPECT_THAT(refusal({65536, 65536, 1, 1}, 0), HasSubstr("4294967296 ranks"));
}

}  // namespace
}  // namespace spillway
