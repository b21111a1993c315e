#include "workload/routing/coactivation.hpp"

#include <gtest/gtest.h>

#include "routing_fixtures.hpp"

namespace spillway {
namespace {

using namespace routing_test;

struct Measured {
  double ochiai = 0, nodes = 0;
};

/// One layer of a balanced E256 k8 workload over several sequences, four nodes.
Measured measure(double exchanges_per_token) {
  RoutingOptions options = preset_options("balanced");
  options.exchanges_per_token = exchanges_per_token;
  const RoutingProblem problem{256, 8, 1, 2048, 8};
  const auto source = make_routing_source(options, problem);
  Coactivation counts(256);
  Measured m;
  for (std::int64_t q = 0; q < 8; ++q) {
    const auto choices = choices_of(*source, problem, {0, 0, q});
    counts.add(choices, 8);
    m.nodes += distinct_nodes_per_token(choices, 8, {256, 4}) / 8;
  }
  m.ochiai = counts.ochiai_mean();
  return m;
}

TEST(Coactivation, ochiai_of_a_hand_worked_case) {
  // Tokens {0,1} {0,1} {0,2}: c0 = 3, c1 = 2, c2 = 1, c01 = 2, c02 = 1, c12 = 0 (no pair).
  const std::vector<std::int32_t> choices{0, 1, 1, 0, 0, 2};
  Coactivation counts(4);
  counts.add(choices, 2);
  EXPECT_DOUBLE_EQ(counts.ochiai_mean(), (2 / std::sqrt(6.0) + 1 / std::sqrt(3.0)) / 2);
  EXPECT_DOUBLE_EQ(counts.ochiai_mean_over_tokens(), (2 * 2 / std::sqrt(6.0) + 1 / std::sqrt(3.0)) / 3);
  EXPECT_DOUBLE_EQ(Coactivation(3).ochiai_mean(), 0);
}

TEST(Coactivation, distinct_nodes_of_a_hand_worked_case) {
  const std::vector<std::int32_t> choices{0, 1, 2, /**/ 0, 4, 7, /**/ 3, 2, 6};  // nodes 0 0 1, 0 2 3, 1 1 3
  EXPECT_DOUBLE_EQ(distinct_nodes_per_token(choices, 3, {8, 4}), 7.0 / 3);
  EXPECT_DOUBLE_EQ(distinct_nodes_per_token({}, 3, {8, 4}), 0);
}

TEST(Coactivation, uniform_expectation_matches_the_published_values) {
  EXPECT_NEAR(expected_distinct_nodes(8, {256, 4}), 3.614, 0.0005);
  EXPECT_NEAR(expected_distinct_nodes(8, {256, 8}), 5.295, 0.0005);
  EXPECT_DOUBLE_EQ(expected_distinct_nodes(4, {4, 2}), 2);
}

TEST(Coactivation, no_exchanges_are_cliques_and_many_are_uniform) {
  EXPECT_GT(measure(0).ochiai, 0.95);
  const Measured uniform = measure(32);
  EXPECT_NEAR(uniform.ochiai, 7.0 / 255, 0.003);  // c_ij / c_i of a uniform choice
  EXPECT_NEAR(uniform.nodes, 3.614, 0.03);
}

TEST(Coactivation, exchanges_lower_it_step_by_step) {
  double before = 1.01;
  for (const double exchanges : {0.0, 0.002, 0.005, 0.02, 0.1, 1.0}) {
    const double now = measure(exchanges).ochiai;
    EXPECT_LT(now, before) << exchanges;
    before = now;
  }
}

TEST(Coactivation, cliques_hold_under_topics_and_bursts) {
  const auto over_tokens = [](double exchanges) {
    RoutingOptions options;
    options.burst_fraction = 0.5;
    options.exchanges_per_token = exchanges;
    const RoutingProblem problem{16, 4, 1, 512, 16};
    const auto source = make_routing_source(options, problem);
    Coactivation counts(16);
    for (std::int64_t i = 0; i < 40; ++i) counts.add(choices_of(*source, problem, {i, 0, i % 16}), 4);
    return counts.ochiai_mean_over_tokens();
  };
  EXPECT_GT(over_tokens(0), 0.6);
  EXPECT_NEAR(over_tokens(16), 3.0 / 15, 0.02);
}

}  // namespace
}  // namespace spillway
