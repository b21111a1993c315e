#include "workload/routing/apportion.hpp"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spillway {
namespace {

using testing::ElementsAre;

std::vector<std::int32_t> apportioned(std::vector<std::int64_t> weights, Quota quota) {
  std::vector<std::int32_t> rows(weights.size());
  apportion(weights, quota, rows);
  return rows;
}

TEST(Apportion, gives_the_largest_remainders_the_rows_left) {
  // 10 rows at 5:3:1 -> quotas 5.56, 3.33, 1.11.
  EXPECT_THAT(apportioned({5, 3, 1}, {10, 10, 0}), ElementsAre(6, 3, 1));
  // 7 rows at 1:1:2:3 -> 1, 1, 2, 3 exactly.
  EXPECT_THAT(apportioned({1, 1, 2, 3}, {7, 7, 5}), ElementsAre(1, 1, 2, 3));
}

TEST(Apportion, what_a_capped_member_cannot_take_goes_to_the_others_in_proportion) {
  // Uncapped 8, 2, 1, 1; the first stops at 4, and 8 rows at 2:1:1 are 4, 2, 2.
  EXPECT_THAT(apportioned({8, 2, 1, 1}, {12, 4, 0}), ElementsAre(4, 4, 2, 2));
  // The rest then passes the cap too.
  EXPECT_THAT(apportioned({90, 9, 1}, {10, 4, 0}), ElementsAre(4, 4, 2));
  EXPECT_THAT(apportioned({1, 0, 1}, {6, 3, 1}), ElementsAre(3, 0, 3));
}

TEST(Apportion, equal_weights_are_served_in_a_cycle_over_the_turns) {
  std::vector<std::int64_t> sum(7);
  for (std::int64_t turn = 0; turn < 30; ++turn) {
    const auto rows = apportioned(std::vector<std::int64_t>(7, 3), {10, 10, turn});
    for (int i = 0; i < 7; ++i) sum[i] += rows[i];
    EXPECT_LE(*std::max_element(sum.begin(), sum.end()) - *std::min_element(sum.begin(), sum.end()), 1) << turn;
  }
}

TEST(Apportion, sums_to_the_total_below_the_cap_and_within_one_row_of_the_quota) {
  int uncapped = 0;
  for (std::uint64_t trial = 0; trial < 3000; ++trial) {
    const CounterRandom draw(7, trial);
    const auto members = static_cast<std::int64_t>(1 + draw.below(0, 40));
    std::vector<std::int64_t> weights(members);
    for (std::int64_t i = 0; i < members; ++i) weights[i] = static_cast<std::int64_t>(1 + draw.below(i + 9, 1 << 26));
    const auto cap = static_cast<std::int64_t>(1 + draw.below(1, 5000));
    const auto total = static_cast<std::int64_t>(draw.below(2, members * cap + 1));
    const auto rows = apportioned(weights, {total, cap, static_cast<std::int64_t>(draw.below(3, 1000))});
    ASSERT_EQ(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}), total);
    bool capped = false;
    for (std::int64_t i = 0; i < members; ++i) {
      ASSERT_GE(rows[i], 0);
      ASSERT_LE(rows[i], cap);
      capped |= rows[i] == cap;
    }
    if (capped) continue;
    ++uncapped;
    const auto sum = static_cast<double>(std::accumulate(weights.begin(), weights.end(), std::int64_t{0}));
    for (std::int64_t i = 0; i < members; ++i) {
      const double quota = static_cast<double>(weights[i]) * static_cast<double>(total) / sum;
      ASSERT_LT(std::abs(rows[i] - quota), 1 + 1e-9);
    }
  }
  EXPECT_GT(uncapped, 500);
}

TEST(Apportion, rows_that_fit_nowhere_are_an_internal_error) {
  EXPECT_THROW(apportioned({1, 1}, {5, 2, 0}), InternalError);
  EXPECT_THROW(apportioned({0, 1}, {2, 1, 0}), InternalError);
}

}  // namespace
}  // namespace spillway
