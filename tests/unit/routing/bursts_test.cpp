#include "workload/routing/bursts.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

std::int64_t burst_iterations(const BurstSchedule& schedule, std::int64_t iterations) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < iterations; ++i) count += schedule.burst(i).has_value();
  return count;
}

TEST(Bursts, the_asked_share_is_met_exactly_over_whole_periods) {
  // 20 / 0.029 = 689.66 iterations: 29 periods are 20,000 iterations.
  for (const std::uint64_t seed : {1, 2, 3}) EXPECT_EQ(burst_iterations({seed, 20, 0.029}, 20'000), 580);
  EXPECT_EQ(burst_iterations({1, 5, 0.25}, 2000), 500);
  EXPECT_EQ(burst_iterations({1, 3, 0.3}, 10'000), 3000);
}

TEST(Bursts, any_number_of_periods_is_within_half_an_iteration_of_the_share) {
  const BurstSchedule schedule(5, 7, 0.0313);
  for (std::int64_t period = 1; period < 200; ++period) {
    const double exact = 7 * static_cast<double>(period) / 0.0313;
    EXPECT_LE(std::abs(static_cast<double>(schedule.period_start(period)) - exact), 0.5);
    EXPECT_EQ(burst_iterations(schedule, schedule.period_start(period)), 7 * period);
  }
}

TEST(Bursts, every_period_has_one_uninterrupted_burst) {
  const BurstSchedule schedule(9, 11, 0.07);
  for (std::int64_t period = 0; period < 50; ++period) {
    std::int64_t inside = 0, starts = 0;
    for (std::int64_t i = schedule.period_start(period); i < schedule.period_start(period + 1); ++i) {
      const auto burst = schedule.burst(i);
      if (!burst) continue;
      EXPECT_EQ(*burst, period);
      ++inside;
      starts += i == schedule.period_start(period) || !schedule.burst(i - 1) || *schedule.burst(i - 1) != period;
    }
    EXPECT_EQ(inside, 11);
    EXPECT_EQ(starts, 1);
  }
}

TEST(Bursts, share_0_has_none_and_share_1_is_all_bursts) {
  EXPECT_EQ(burst_iterations({1, 20, 0.0}, 1000), 0);
  EXPECT_EQ(burst_iterations({1, 20, 1.0}, 1000), 1000);
}

TEST(Bursts, the_place_inside_a_period_is_seeded) {
  const auto first = [](std::uint64_t seed) {
    const BurstSchedule schedule(seed, 20, 0.029);
    std::int64_t i = 0;
    while (!schedule.burst(i)) ++i;
    return i;
  };
  EXPECT_EQ(first(1), first(1));
  EXPECT_FALSE(first(1) == first(2) && first(2) == first(3));
}

}  // namespace
}  // namespace spillway
