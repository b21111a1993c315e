// Live counts in closed form against the orders themselves, and against published values.
#include "plan/live_count.hpp"

#include <gtest/gtest.h>

#include "plan/schedule/interleaved.hpp"

namespace spillway {
namespace {

TEST(LiveCount, IsWhatTheOrderHolds) {
  for (int p = 1; p <= 8; ++p)
    for (int v = 1; v <= 4; ++v)
      for (int m = 1; m <= 17; ++m)
        for (int r = 0; r < p; ++r)
          ASSERT_EQ(peak_live_pairs({p, m, v}, r), peak_live(interleaved_order({p, m, v}, r)))
              << "p " << p << ", v " << v << ", m " << m << ", stage " << r;
}

TEST(LiveCount, InMicroBatchesOnTheFirstStage) {
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({4, 8, 1}, 0), 4);
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({4, 8, 2}, 0), 5.5);
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({8, 56, 2}, 0), 11.5);
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({8, 56, 4}, 0), 9.75);
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({8, 56, 2}, 7), 4.5);  // the last stage: 8 of the warm-up and one, 2 chunks
  EXPECT_DOUBLE_EQ(peak_live_micro_batches({4, 1, 4}, 0), 1);
}

TEST(RankLoadBound, IsWhatDistinctExpertsAllow) {
  EXPECT_DOUBLE_EQ(rank_load_bound({64, 4, 32}), 16);             // 2 experts a rank
  EXPECT_DOUBLE_EQ(rank_load_bound({128, 6, 64}), 64.0 * 2 / 6);  // 21.3
  EXPECT_DOUBLE_EQ(rank_load_bound({256, 8, 8}), 8);              // 32 experts a rank hold all 8 choices
  EXPECT_DOUBLE_EQ(rank_load_bound({8, 2, 1}), 1);                // alone, a rank holds all experts
  EXPECT_EQ(most_rows({128, 6, 64}, 2048), 262144);
}

}  // namespace
}  // namespace spillway
