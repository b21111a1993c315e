#include "workload/routing/presets.hpp"

#include <gmock/gmock.h>

#include "routing_fixtures.hpp"

namespace spillway {
namespace {

using namespace routing_test;
using testing::Each;
using testing::HasSubstr;

/// All sequences hot, so that an iteration's totals show the preset.
RoutingOptions all_hot(const std::string& preset, double peak) {
  RoutingOptions options = preset_options(preset);
  options.hot_share = 1;
  options.peak = peak;
  return options;
}

/// 32 experts, 8 of them on each of 4 reference ranks.
RoutingProblem wide_problem() { return {32, 4, 3, 128, 16}; }

TEST(Presets, balanced_is_exactly_even_as_far_as_rows_divide) {
  const RoutingProblem even{16, 2, 2, 64, 8};
  const auto source = make_routing_source(preset_options("balanced"), even);
  for (std::int64_t q = 0; q < 8; ++q) EXPECT_THAT(rows_of(*source, even, {q, q % 2, q}), Each(8));

  const RoutingProblem uneven{12, 5, 1, 7, 24};  // 35 rows on 12 experts
  const auto uneven_source = make_routing_source(preset_options("balanced"), uneven);
  EXPECT_THAT(iteration_rows(*uneven_source, uneven, 3, 0), Each(70));
  for (std::int64_t q = 0; q < 24; ++q)
    EXPECT_THAT(rows_of(*uneven_source, uneven, {0, 0, q}), Each(testing::AnyOf(2, 3)));
}

TEST(Presets, hot_experts_skews_experts_and_leaves_ranks_even) {
  const RoutingProblem problem = wide_problem();
  const auto source = make_routing_source(all_hot("hot_experts", 5), problem);
  const auto rows = iteration_rows(*source, problem, 0, 0);
  EXPECT_NEAR(max_over_mean(rows), 5, 0.05);
  EXPECT_NEAR(max_over_mean(per_rank(rows, 4)), 1, 0.01);
  EXPECT_EQ(std::ranges::count_if(rows, [](auto r) { return r > 512; }), 4);
}

TEST(Presets, hot_rank_heats_the_same_block_in_every_iteration) {
  const RoutingProblem problem = wide_problem();
  const auto source = make_routing_source(all_hot("hot_rank", 2.6), problem);
  const auto first = per_rank(iteration_rows(*source, problem, 0, 0), 4);
  EXPECT_NEAR(max_over_mean(first), 2.6, 0.01);
  for (std::int64_t iteration = 0; iteration < 300; iteration += 50) {
    EXPECT_TRUE(source->in_burst(iteration));
    EXPECT_EQ(per_rank(iteration_rows(*source, problem, iteration, 2), 4), first);
  }
}

TEST(Presets, spread_has_the_heat_of_hot_rank_over_all_ranks) {
  const RoutingProblem problem = wide_problem();
  const auto block = make_routing_source(all_hot("hot_rank", 2.6), problem);
  const auto spread = make_routing_source(all_hot("spread", 2.6), problem);
  auto hot = iteration_rows(*block, problem, 0, 0), even = iteration_rows(*spread, problem, 0, 0);
  EXPECT_NEAR(max_over_mean(per_rank(even, 4)), 1, 0.02);
  std::ranges::sort(hot);
  std::ranges::sort(even);
  EXPECT_EQ(hot, even);  // the same experts' loads, in other places
}

TEST(Presets, empty_leaves_a_whole_rank_and_some_experts_without_tokens) {
  const RoutingProblem problem = wide_problem();
  const auto source = make_routing_source(preset_options("empty"), problem);
  const auto rows = iteration_rows(*source, problem, 5, 1);
  EXPECT_EQ(std::ranges::count(rows, 0), 8 + 3);
  EXPECT_EQ(std::ranges::count(per_rank(rows, 4), 0), 1);
  EXPECT_FALSE(source->in_burst(5));
  const RoutingProblem single{4, 2, 1, 16, 4};  // one expert per rank: only the rank is empty
  EXPECT_EQ(std::ranges::count(iteration_rows(*make_routing_source(preset_options("empty"), single), single, 0, 0), 0),
            1);
}

TEST(Presets, rotating_moves_the_hot_block_every_iteration) {
  const RoutingProblem problem = wide_problem();
  const auto source = make_routing_source(all_hot("rotating", 2.6), problem);
  const auto hottest = [&](std::int64_t iteration) {
    const auto ranks = per_rank(iteration_rows(*source, problem, iteration, 0), 4);
    EXPECT_NEAR(max_over_mean(ranks), 2.6, 0.01);
    return std::max_element(ranks.begin(), ranks.end()) - ranks.begin();
  };
  for (std::int64_t iteration = 0; iteration < 9; ++iteration) {
    EXPECT_EQ(hottest(iteration + 1), (hottest(iteration) + 1) % 4);
  }
}

TEST(Presets, bursts_heat_different_blocks) {
  RoutingOptions options = all_hot("burst", 2.6);
  options.burst_fraction = 1;
  const RoutingProblem problem = wide_problem();
  const auto source = make_routing_source(options, problem);
  std::vector<int> seen(4);
  for (std::int64_t burst = 0; burst < 30; ++burst) {
    const auto first = per_rank(iteration_rows(*source, problem, burst * 20, 0), 4);
    const auto last = per_rank(iteration_rows(*source, problem, burst * 20 + 19, 0), 4);
    const auto hottest = std::max_element(first.begin(), first.end()) - first.begin();
    EXPECT_EQ(hottest, std::max_element(last.begin(), last.end()) - last.begin());
    seen[hottest] = 1;
  }
  EXPECT_THAT(seen, Each(1));
}

TEST(Presets, everything_on_one_rank_is_the_bound_of_k_distinct_experts_and_is_reached) {
  // 8 experts per rank, top-4: all rows fit one rank. Bound 4 * 4 / 4 = 4.
  const RoutingProblem wide = wide_problem();
  const auto all = per_rank(iteration_rows(*make_routing_source(all_hot("hot_rank", 4), wide), wide, 0, 0), 4);
  EXPECT_EQ(std::ranges::count(all, 0), 3);
  // 2 experts per rank, top-6, 8 ranks: bound 8 * 2 / 6.
  const RoutingProblem narrow{16, 6, 2, 24, 8};
  RoutingOptions options = all_hot("hot_rank", 8.0 * 2 / 6);
  options.reference_ranks = 8;
  const auto source = make_routing_source(options, narrow);
  for (std::int64_t q = 0; q < 8; ++q) {
    const auto rows = rows_of(*source, narrow, {0, 0, q});
    EXPECT_EQ(std::ranges::count(rows, 24), 2);  // both experts of the hot rank take every token
  }
}

TEST(Presets, an_unknown_name_is_refused_and_the_nearest_suggested) {
  const auto message = [](const char* name) {
    return refusal([&] { validate(preset_options(name), small_problem()); });
  };
  EXPECT_THAT(message("bursts"), HasSubstr("did you mean 'burst'"));
  EXPECT_THAT(message("hot-rank"), HasSubstr("did you mean 'hot_rank'"));
  EXPECT_THAT(message("balance"), HasSubstr("did you mean 'balanced'"));
  EXPECT_THAT(message(""), HasSubstr("There are balanced, "));
}

}  // namespace
}  // namespace spillway
