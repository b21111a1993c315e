// Every statistic that a case asks for is met, at the reference layout.
#include <gmock/gmock.h>

#include "routing_fixtures.hpp"

namespace spillway {
namespace {

using namespace routing_test;

struct Measured {
  double calm = 0, peak_least = 1e9, peak_most = 0;  ///< mean over calm iterations; extremes over burst iterations
  std::int64_t calm_iterations = 0, burst_iterations = 0;
};

Measured measure(const RoutingOptions& options, const RoutingProblem& problem, std::int64_t iterations,
                 std::int64_t stride = 1) {
  const auto source = make_routing_source(options, problem);
  const Grouping grouping = reference_grouping(options, problem);
  Measured m;
  for (std::int64_t i = 0; i < iterations * stride; i += stride) {
    const double imbalance = iteration_imbalance(*source, problem, grouping, i).max;
    if (source->in_burst(i)) {
      m.peak_least = std::min(m.peak_least, imbalance);
      m.peak_most = std::max(m.peak_most, imbalance);
      ++m.burst_iterations;
    } else {
      m.calm += imbalance;
      ++m.calm_iterations;
    }
  }
  m.calm /= static_cast<double>(m.calm_iterations);
  return m;
}

void expect_met(const Measured& m, const RoutingOptions& options) {
  EXPECT_NEAR(m.calm, options.calm, 0.05 * options.calm);
  EXPECT_NEAR(m.calm - 1, options.calm - 1, 0.15 * (options.calm - 1));  // the excess over even, too
  ASSERT_GT(m.burst_iterations, 0);
  EXPECT_NEAR(m.peak_least, options.peak, 0.05 * options.peak);
  EXPECT_NEAR(m.peak_most, options.peak, 0.05 * options.peak);
}

TEST(Calibration, calm_and_peak_are_met_over_10000_iterations) {
  const RoutingOptions options;
  const Measured m = measure(options, small_problem(), 10'000);
  expect_met(m, options);
  EXPECT_NEAR(static_cast<double>(m.burst_iterations), 290, 20);  // 14.5 periods, so one burst may be in or out
}

TEST(Calibration, calm_and_peak_are_met_for_other_seeds_levels_and_stages) {
  for (const std::uint64_t seed : {2, 77, 12345}) {
    for (const double calm : {1.05, 1.2}) {
      RoutingOptions options;
      options.seed = seed;
      options.calm = calm;
      options.peak = 1.8;
      options.reference_stages = seed == 2 ? 4 : 1;
      options.same_block = seed != 77;
      SCOPED_TRACE(fmt::format("seed {} calm {}", seed, calm));
      expect_met(measure(options, small_problem(), 2000, 5), options);
    }
  }
}

TEST(Calibration, calm_and_peak_are_met_with_128_experts_top_6_on_64_ranks) {
  RoutingOptions options;
  options.reference_ranks = 64;
  options.reference_sequences = 32;
  options.burst_fraction = 0.2;
  const RoutingProblem problem{128, 6, 4, 1024, 128};
  expect_met(measure(options, problem, 60, 150), options);
}

TEST(Calibration, a_large_batch_is_calibrated_from_a_sample_of_its_micro_batches) {
  RoutingOptions options;
  options.burst_fraction = 0.1;
  expect_met(measure(options, {16, 2, 4, 64, 1200}, 100, 99), options);  // 300 micro-batches, 64 of them sampled
}

TEST(Calibration, the_peak_is_met_where_a_sequence_has_few_rows) {
  // 5 rows per sequence: the hot block takes 3.25 of them, 13 of the 20 rows of every hot micro-batch.
  RoutingOptions options = preset_options("hot_rank");
  const RoutingProblem problem{16, 1, 2, 5, 16};
  const auto source = make_routing_source(options, problem);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_DOUBLE_EQ(iteration_imbalance(*source, problem, reference_grouping(options, problem), i).max, 2.6);
  }
}

TEST(Calibration, exactly_the_asked_share_of_micro_batches_is_hot) {
  RoutingOptions options;
  options.burst_fraction = 1;
  options.hot_share = 0.5;
  const RoutingProblem problem = small_problem();
  const auto source = make_routing_source(options, problem);
  for (std::int64_t iteration = 0; iteration < 50; ++iteration) {
    std::string hot;
    for (std::int64_t first = 0; first < 16; first += 4) {
      std::vector<std::int64_t> rows(16);
      for (std::int64_t sequence = first; sequence < first + 4; ++sequence) {
        const auto row = rows_of(*source, problem, {iteration, 0, sequence});
        for (int e = 0; e < 16; ++e) rows[e] += row[e];
      }
      hot += max_over_mean(per_rank(rows, 4)) > 2 ? 'h' : '.';
    }
    EXPECT_TRUE(hot == "hh.." || hot == ".hh." || hot == "..hh") << hot;
  }
}

TEST(Calibration, same_block_heats_one_block_in_all_layers_and_otherwise_several) {
  RoutingOptions options;
  options.burst_fraction = 1;
  options.hot_share = 1;
  const RoutingProblem problem{16, 2, 12, 64, 16};
  const auto hot_blocks = [&](bool same) {
    options.same_block = same;
    const auto source = make_routing_source(options, problem);
    std::vector<int> seen(4);
    for (std::int64_t layer = 0; layer < problem.num_layers; ++layer) {
      const auto ranks = per_rank(iteration_rows(*source, problem, 3, layer), 4);
      seen[std::max_element(ranks.begin(), ranks.end()) - ranks.begin()] = 1;
    }
    return std::accumulate(seen.begin(), seen.end(), 0);
  };
  EXPECT_EQ(hot_blocks(true), 1);
  EXPECT_GT(hot_blocks(false), 1);
}

TEST(Calibration, topics_drift_slowly) {
  RoutingOptions options;
  options.burst_fraction = 0;
  options.calm = 1.3;
  const RoutingProblem problem{16, 2, 2, 512, 64};
  const auto source = make_routing_source(options, problem);
  const auto patterns = [&](std::int64_t iteration) {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int64_t q = 0; q < problem.sequences_per_iteration; ++q)
      all.push_back(rows_of(*source, problem, {iteration, 0, q}));
    return all;
  };
  // Distance from each sequence at iteration 0 to the nearest sequence of another iteration, in rows.
  const auto distance = [&](std::int64_t iteration) {
    const auto from = patterns(0), to = patterns(iteration);
    double sum = 0;
    for (const auto& a : from) {
      std::int64_t nearest = 1 << 30;
      for (const auto& b : to) {
        std::int64_t d = 0;
        for (int e = 0; e < 16; ++e) d += std::abs(a[e] - b[e]);
        nearest = std::min(nearest, d);
      }
      sum += static_cast<double>(nearest);
    }
    return sum / static_cast<double>(from.size());
  };
  const double soon = distance(10), later = distance(4000), far = distance(11'250);
  EXPECT_LT(soon, 0.5 * later);
  EXPECT_LT(later, far);
}

TEST(Calibration, a_calm_level_that_topics_cannot_reach_is_refused_with_what_they_reach) {
  RoutingOptions options;
  options.calm = 3.9;
  options.peak = 3.9;
  EXPECT_THAT(refusal([&] { make_routing_source(options, small_problem()); }),
              testing::AllOf(testing::HasSubstr("routing.calm = 3.9"), testing::HasSubstr("reach ")));
}

}  // namespace
}  // namespace spillway
