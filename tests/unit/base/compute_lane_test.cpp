// Computation beside copies and messages: charged once, whichever was issued first, and monotone.
#include "base/compute_lane.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace spillway {
namespace {

TEST(ComputeLane, ACopySlowsTheComputationIssuedAfterIt) {
  ComputeLane lane;
  lane.transfer(Seconds(10));
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(0), Seconds(20), 1.25).value, 22);  // 8 of 20 s done in 10 s, 12 s alone
  EXPECT_DOUBLE_EQ(lane.settled(1.25).value, 22);
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(0), Seconds(5), 1.25).value, 27);
}

TEST(ComputeLane, ACopyIssuedOverAComputationMovesTheEndOfTheLaneAsMuch) {
  ComputeLane lane;
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(0), Seconds(20), 1.25).value, 20);
  lane.transfer(Seconds(10));
  EXPECT_DOUBLE_EQ(lane.settled(1.25).value, 22);
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(0), Seconds(5), 1.25).value, 26.25);  // slow throughout
  EXPECT_DOUBLE_EQ(lane.settled(1.25).value, 27);
}

TEST(ComputeLane, AnIdleLaneUsesUpTheSecondsBeside) {
  ComputeLane lane;
  lane.transfer(Seconds(10));
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(6), Seconds(20), 1.25).value, 26.8);
  lane = {};
  lane.transfer(Seconds(10));
  EXPECT_DOUBLE_EQ(lane.compute(Seconds(10), Seconds(20), 1.25).value, 30);
}

TEST(ComputeLane, WithoutInterferenceNothingIsSlowed) {
  ComputeLane lane;
  lane.transfer(Seconds(10));
  EXPECT_EQ(lane.compute(Seconds(0.1), Seconds(0.2), 1), Seconds(0.1) + Seconds(0.2));
  EXPECT_EQ(lane.settled(1), lane.end);
}

/// What planning by dominance rests on.
TEST(ComputeLane, WhatStandsEarlierStaysEarlier) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const CounterRandom random(seed, 1);
    const double factor = 1 + random.uniform(0);
    ComputeLane early{Seconds(random.uniform(1)), {}}, late{early.end + Seconds(random.uniform(2)), {}};
    early.beside = early.end + Seconds(2 * random.uniform(3));
    late.beside = std::max(late.end, early.beside) + Seconds(random.uniform(4));
    for (std::uint64_t n = 5; n < 65; n += 4) {
      const Seconds alone(random.uniform(n)), ready(3 * random.uniform(n + 1)), wait(random.uniform(n + 2));
      if (random.below(n + 3, 2) == 0) {
        early.transfer(alone);
        late.transfer(alone + wait);
      } else {
        early.compute(ready, alone, factor);
        late.compute(ready + wait, alone, factor);
      }
      constexpr Seconds rounding(1e-12);
      ASSERT_LE(early.end, late.end + rounding) << "seed " << seed;
      ASSERT_LE(early.beside, late.beside + rounding) << "seed " << seed;
      ASSERT_LE(early.settled(factor), late.settled(factor) + rounding) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace spillway
