#include "plan/load_bound.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

TEST(RankLoadBound, IsWhatDistinctExpertsAllow) {
  EXPECT_DOUBLE_EQ(rank_load_bound({64, 4, 32}), 16);             // 2 experts a rank
  EXPECT_DOUBLE_EQ(rank_load_bound({128, 6, 64}), 64.0 * 2 / 6);  // 21.3
  EXPECT_DOUBLE_EQ(rank_load_bound({256, 8, 8}), 8);              // 32 experts a rank hold all 8 choices
  EXPECT_DOUBLE_EQ(rank_load_bound({8, 2, 1}), 1);                // alone, a rank holds all experts
  EXPECT_EQ(most_rows({128, 6, 64}, 2048), 262144);
}

}  // namespace
}  // namespace spillway
