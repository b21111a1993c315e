// Totals first, then tokens: k distinct experts for every token, column sums equal to the totals.
#include "workload/routing/deal.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "routing_fixtures.hpp"
#include "workload/routing/apportion.hpp"
#include "workload/routing/presets.hpp"

namespace spillway {
namespace {

using namespace routing_test;

void expect_valid_choices(const std::vector<std::int32_t>& experts, std::int64_t k,
                          const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> sums(rows.size());
  for (std::size_t first = 0; first < experts.size(); first += k) {
    std::vector<std::int32_t> token(experts.begin() + first, experts.begin() + first + k);
    std::ranges::sort(token);
    ASSERT_EQ(std::ranges::adjacent_find(token), token.end()) << "token " << first / k << " has an expert twice";
    for (const std::int32_t e : token) {
      ASSERT_TRUE(e >= 0 && e < static_cast<std::int32_t>(rows.size())) << e;
      ++sums[e];
    }
  }
  ASSERT_EQ(sums, rows);
}

TEST(Deal, hand_worked_case) {
  // Cliques {2, 1} and {0, 3} in order 2 0 1 3; 4 tokens. Least rows 1 and 2: three whole tokens would leave expert 1 with
  // two rows for one token, so the factor is (4 - 3) / (3 - 1) = 1/2: none of the first, one of the second. The other rows
  // 0 0, 1 1 1, 2, in order 2 0 1, over three tokens: 2 0 ? / then 1 1 1.
  const std::vector<std::int32_t> rows{2, 3, 1, 2}, order{2, 0, 1, 3};
  std::vector<std::int32_t> experts(8);
  deal_tokens(rows, order, 2, experts);
  EXPECT_THAT(experts, testing::ElementsAre(0, 3, 2, 1, 0, 1, 1, 3));
}

TEST(Deal, cliques_survive_uneven_totals) {
  // Cliques {0, 3}, {1, 4}, {2, 5} with least rows 5, 3, 2 of 12 tokens: all of them are whole tokens.
  const std::vector<std::int32_t> rows{6, 4, 3, 5, 3, 3}, order{0, 1, 2, 3, 4, 5};
  std::vector<std::int32_t> experts(24);
  deal_tokens(rows, order, 2, experts);
  int whole = 0;
  for (int t = 0; t < 12; ++t) whole += experts[2 * t] + 3 == experts[2 * t + 1];
  EXPECT_GE(whole, 5 + 3 + 2);
  expect_valid_choices(experts, 2, rows);
}

TEST(Deal, even_rows_make_cliques_of_experts_E_over_k_apart) {
  const std::vector<std::int32_t> rows(12, 4), order{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<std::int32_t> experts(48);
  deal_tokens(rows, order, 3, experts);
  for (int t = 0; t < 16; ++t) {
    EXPECT_THAT(std::vector(experts.begin() + 3 * t, experts.begin() + 3 * t + 3),
                testing::ElementsAre(t / 4, t / 4 + 4, t / 4 + 8));
  }
}

TEST(Deal, any_totals_up_to_s_give_k_distinct_experts_before_and_after_exchanges) {
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    const CounterRandom draw(11, trial);
    auto pick = [&draw, n = std::uint64_t{0}](std::int64_t least, std::int64_t most) mutable {
      return least + static_cast<std::int64_t>(draw.below(n++, most - least + 1));
    };
    const std::int64_t experts = pick(1, 40);
    const std::int64_t k = trial % 5 == 0 ? experts : trial % 5 == 1 ? 1 : pick(1, experts);
    const std::int64_t s = trial % 7 == 0 ? 1 : pick(1, 60);
    std::vector<std::int64_t> weights(experts);
    for (auto& w : weights) w = 1 + (std::int64_t{1} << pick(0, 20));
    std::vector<std::int32_t> rows(experts), order(experts), choices(s * k);
    apportion(weights, {s * k, s, pick(0, 99)}, rows);
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + pick(0, experts - 1), order.end());
    deal_tokens(rows, order, k, choices);
    ASSERT_NO_FATAL_FAILURE(expect_valid_choices(choices, k, rows)) << "E " << experts << " k " << k << " s " << s;
    exchange_slots(choices, k, 5 * s, trial);
    ASSERT_NO_FATAL_FAILURE(expect_valid_choices(choices, k, rows)) << "E " << experts << " k " << k << " s " << s;
  }
}

TEST(Deal, exchanges_change_tokens_and_are_repeatable) {
  std::vector<std::int32_t> rows(8, 16), order{0, 1, 2, 3, 4, 5, 6, 7}, dealt(128);
  deal_tokens(rows, order, 2, dealt);
  auto once = dealt, again = dealt, other = dealt;
  exchange_slots(once, 2, 64, 5);
  exchange_slots(again, 2, 64, 5);
  exchange_slots(other, 2, 64, 6);
  EXPECT_NE(once, dealt);
  EXPECT_EQ(once, again);
  EXPECT_NE(once, other);
}

TEST(Deal, every_preset_keeps_the_promises_at_random_shapes) {
  int built = 0;
  for (std::uint64_t trial = 0; trial < 600; ++trial) {
    const CounterRandom draw(13, trial);
    auto pick = [&draw, n = std::uint64_t{0}](std::int64_t least, std::int64_t most) mutable {
      return least + static_cast<std::int64_t>(draw.below(n++, most - least + 1));
    };
    const Preset& preset = presets()[trial % (presets().size() - 1)];  // all but trace
    RoutingOptions options = preset_options(std::string(preset.name));
    options.seed = trial;
    options.reference_ranks = pick(1, 6);
    RoutingProblem problem{options.reference_ranks * pick(1, 6), 0, pick(1, 3), pick(1, 40), pick(1, 12)};
    problem.num_experts_per_tok = pick(1, problem.num_experts);
    options.calm = 1;  // with any spread of topics a tiny shape may be refused
    options.peak = 1 + 0.3 * static_cast<double>(pick(0, 10));
    options.burst_fraction = 0.5;
    options.hot_share = 0.5;
    options.same_block = pick(0, 1) == 1;
    std::unique_ptr<RoutingSource> source;
    if (!refusal([&] { source = make_routing_source(options, problem); }).empty()) continue;
    ++built;
    for (std::int64_t q = 0; q < problem.sequences_per_iteration; ++q) {
      const RoutingKey key{pick(0, 1000), pick(0, problem.num_layers - 1), q};
      const auto rows = rows_of(*source, problem, key);
      ASSERT_LE(*std::ranges::max_element(rows), problem.sequence_length);
      ASSERT_NO_FATAL_FAILURE(
          expect_valid_choices(choices_of(*source, problem, key), problem.num_experts_per_tok, rows))
          << preset.name << " trial " << trial;
    }
  }
  EXPECT_GT(built, 200);
}

TEST(Deal, topics_and_bursts_keep_the_promises) {
  const RoutingProblem problem = small_problem();
  const auto source = make_routing_source({}, problem);
  for (std::int64_t iteration = 0; iteration < 700; iteration += 7) {
    for (std::int64_t q = 0; q < 16; q += 3) {
      const RoutingKey key{iteration, iteration % 4, q};
      ASSERT_NO_FATAL_FAILURE(
          expect_valid_choices(choices_of(*source, problem, key), 2, rows_of(*source, problem, key)));
    }
  }
}

}  // namespace
}  // namespace spillway
