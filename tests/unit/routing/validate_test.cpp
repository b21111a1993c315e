// Requests that cannot be met are refused before anything starts, with the arithmetic.
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "routing_fixtures.hpp"
#include "workload/routing/hot_experts.hpp"

namespace spillway {
namespace {

using namespace routing_test;
using testing::AllOf;
using testing::HasSubstr;

std::string refused(const std::function<void(RoutingOptions&)>& change, RoutingProblem problem = small_problem()) {
  RoutingOptions options;
  change(options);
  return refusal([&] { validate(options, problem); });
}

TEST(Validate, defaults_are_accepted) {
  EXPECT_EQ(refused([](RoutingOptions&) {}), "");
}

TEST(Validate, one_above_the_bound_of_k_distinct_experts_is_refused_with_the_arithmetic) {
  const RoutingProblem narrow{16, 6, 2, 24, 32};
  for (const char* preset : {"hot_rank", "spread", "rotating", "burst"}) {
    const auto ask = [&](double peak) {
      return refused([&](RoutingOptions& o) { o.preset = preset, o.reference_ranks = 8, o.peak = peak; }, narrow);
    };
    EXPECT_DOUBLE_EQ(rank_imbalance_bound(narrow, 8), 8.0 * 2 / 6);
    EXPECT_EQ(ask(8.0 * 2 / 6), "");
    EXPECT_THAT(ask(2.67), AllOf(HasSubstr("routing.peak = 2.67"), HasSubstr("8 x 2 / 6 = 2.6666")));
  }
  EXPECT_THAT(refused([](RoutingOptions& o) { o.preset = "hot_rank", o.peak = 4.1; }), HasSubstr("4 x 2 / 2 = 4"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.calm = 4.1, o.peak = 4.1; }), HasSubstr("routing.calm = 4.1"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.preset = "hot_experts", o.peak = 4.5; }), HasSubstr("at most 4"));
  EXPECT_EQ(refused([](RoutingOptions& o) { o.preset = "hot_experts", o.peak = 4; }), "");
}

TEST(Validate, values_that_are_no_numbers_or_out_of_range_are_refused_by_name) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -0.5}) {
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.calm = bad; }), HasSubstr("routing.calm"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.peak = bad; }), HasSubstr("routing.peak"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.burst_fraction = bad; }), HasSubstr("routing.burst_fraction"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.hot_share = bad; }), HasSubstr("routing.hot_share"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.exchanges_per_token = bad; }), HasSubstr("routing.exchanges"));
  }
  EXPECT_THAT(refused([](RoutingOptions& o) { o.hot_share = 1.01; }), HasSubstr("[0, 1]"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.burst_fraction = 1.01; }), HasSubstr("[0, 1]"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.calm = 0.99; }), HasSubstr("routing.calm = 0.99"));
  for (const std::int64_t bad : {0, -3}) {
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.burst_length = bad; }), HasSubstr("at least 1 iteration"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.reference_ranks = bad; }), HasSubstr("nearest: 1"));
    EXPECT_THAT(refused([&](RoutingOptions& o) { o.reference_stages = bad; }), HasSubstr("[1, 4]"));
  }
  EXPECT_THAT(refused([](RoutingOptions& o) { o.reference_sequences = -1; }), HasSubstr("reference_sequences"));
}

TEST(Validate, sizes_that_do_not_divide_are_refused_with_the_nearest_that_do) {
  EXPECT_THAT(refused([](RoutingOptions& o) { o.reference_ranks = 3; }), HasSubstr("nearest: 2 or 4"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.reference_ranks = 32; }), HasSubstr("nearest: 16"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.reference_sequences = 5; }), HasSubstr("nearest: 4 or 8"));
}

TEST(Validate, a_hot_share_that_selects_no_sequence_is_refused) {
  EXPECT_THAT(refused([](RoutingOptions& o) { o.hot_share = 0.1; }),  // 0.4 of four micro-batches
              AllOf(HasSubstr("selects no sequence"), HasSubstr("0.125")));
  EXPECT_EQ(refused([](RoutingOptions& o) { o.hot_share = 0.125; }), "");
  EXPECT_EQ(refused([](RoutingOptions& o) { o.hot_share = 0, o.burst_fraction = 0; }), "");
  EXPECT_EQ(refused([](RoutingOptions& o) { o.hot_share = 0, o.preset = "balanced"; }), "");
}

TEST(Validate, contradictions_are_refused) {
  EXPECT_THAT(refused([](RoutingOptions& o) { o.calm = 1.5, o.peak = 1.4; }), HasSubstr("below routing.calm = 1.5"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.preset = "trace"; }), HasSubstr("needs routing.trace"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.trace = "loads.csv"; }), HasSubstr("read by preset = 'trace' only"));
  EXPECT_THAT(refused([](RoutingOptions& o) { o.preset = "empty", o.reference_ranks = 1; }), HasSubstr("16 - 16 = 0"));
}

TEST(Validate, problems_that_cannot_exist_are_refused) {
  const auto with = [](RoutingProblem problem) { return refused([](RoutingOptions&) {}, problem); };
  EXPECT_THAT(with({16, 17, 1, 8, 4}), HasSubstr("exceeds num_experts"));
  EXPECT_THAT(with({0, 1, 1, 8, 4}), HasSubstr("num_experts = 0"));
  EXPECT_THAT(with({16, 2, 0, 8, 4}), HasSubstr("num_hidden_layers = 0"));
  EXPECT_THAT(with({16, 2, 1, 0, 4}), HasSubstr("sequence_length = 0"));
  EXPECT_THAT(with({16, 2, 1, 8, 0}), HasSubstr("global batch"));
  EXPECT_THAT(with({1 << 17, 2, 1, 8, 4}), HasSubstr("num_experts <= 65536"));
}

TEST(Validate, an_odd_global_batch_still_has_a_reference_grouping) {
  EXPECT_EQ(reference_grouping({}, {16, 2, 1, 8, 7}).sequences, 1);
  EXPECT_EQ(reference_grouping({}, {16, 2, 1, 8, 6}).sequences, 3);
  EXPECT_EQ(reference_grouping({}, {16, 2, 1, 8, 8}).sequences, 4);
}

}  // namespace
}  // namespace spillway
