// The workload belongs to the case, not to its layout or to who asks.
#include <gmock/gmock.h>

#include <thread>

#include "routing_fixtures.hpp"

namespace spillway {
namespace {

using namespace routing_test;

/// A case's layout as far as it could touch routing: who asks for which sequences, in which order.
struct Layout {
  std::int64_t data_parallel, micro_batch_size, stages;
};

/// Checksum as ranks of a layout would sum it: every stage its layers, every data rank its sequences, last rank first.
std::uint64_t checksum_at(const Layout& layout, const RoutingOptions& options, const RoutingProblem& problem,
                          std::int64_t iterations) {
  std::uint64_t sum = 0;
  const std::int64_t per_micro_batch = layout.data_parallel * layout.micro_batch_size;
  for (std::int64_t stage = layout.stages; stage-- > 0;) {
    for (std::int64_t data = layout.data_parallel; data-- > 0;) {
      const auto source = make_routing_source(options, problem);  // every rank has its own
      for (std::int64_t layer = stage; layer < problem.num_layers; layer += layout.stages) {
        for (std::int64_t q = data * layout.micro_batch_size; q < problem.sequences_per_iteration;
             q += per_micro_batch) {
          for (std::int64_t b = 0; b < layout.micro_batch_size; ++b) {
            for (std::int64_t i = 0; i < iterations; ++i) sum += workload_hash(*source, problem, {i, layer, q + b});
          }
        }
      }
    }
  }
  return sum;
}

TEST(Workload, the_checksum_is_equal_over_layouts) {
  const RoutingProblem problem = small_problem();
  RoutingOptions options;
  options.burst_fraction = 0.5;
  options.burst_length = 2;
  const std::uint64_t whole = workload_checksum(*make_routing_source(options, problem), problem, 6);
  for (const Layout& layout :
       {Layout{1, 1, 1}, {1, 4, 2}, {2, 1, 4}, {2, 2, 1}, {4, 1, 2}, {4, 4, 4}, {8, 2, 1}, {16, 1, 1}}) {
    EXPECT_EQ(checksum_at(layout, options, problem, 6), whole)
        << layout.data_parallel << ' ' << layout.micro_batch_size;
  }
}

TEST(Workload, the_checksum_tells_workloads_apart) {
  const RoutingProblem problem = small_problem();
  const auto checksum = [&problem](auto change) {
    RoutingOptions options;
    change(options);
    return workload_checksum(*make_routing_source(options, problem), problem, 3);
  };
  std::vector<std::uint64_t> sums{
      checksum([](RoutingOptions&) {}),
      checksum([](RoutingOptions& o) { o.seed = 2; }),
      checksum([](RoutingOptions& o) { o.calm = 1.2; }),
      checksum([](RoutingOptions& o) { o.burst_fraction = 1; }),
      checksum([](RoutingOptions& o) { o.exchanges_per_token = 3; }),
      checksum([](RoutingOptions& o) { o.preset = "balanced"; }),
      checksum([](RoutingOptions& o) { o.preset = "balanced", o.seed = 2; }),
      checksum([](RoutingOptions& o) { o.preset = "hot_rank"; }),
      checksum([](RoutingOptions& o) { o.preset = "spread"; }),
  };
  std::ranges::sort(sums);
  EXPECT_EQ(std::ranges::adjacent_find(sums), sums.end());
}

TEST(Workload, equal_rows_at_other_places_count_as_another_workload) {
  const RoutingProblem problem = small_problem();
  const auto source = make_routing_source(preset_options("balanced"), problem);  // all rows alike
  const std::uint64_t here = workload_hash(*source, problem, {1, 1, 1});
  EXPECT_NE(workload_hash(*source, problem, {2, 1, 1}), here);
  EXPECT_NE(workload_hash(*source, problem, {1, 2, 1}), here);
  EXPECT_NE(workload_hash(*source, problem, {1, 1, 2}), here);
}

TEST(Workload, seed_not_reset_between_repetitions_cannot_happen) {
  // One source asked twice, in other orders, and a fresh one: the same answers, tokens included.
  const RoutingProblem problem = small_problem();
  const auto first = make_routing_source({}, problem);
  const RoutingKey key{17, 2, 5};
  const auto choices = choices_of(*first, problem, key);
  for (std::int64_t q = 16; q-- > 0;) choices_of(*first, problem, {q, 1, q});
  EXPECT_EQ(choices_of(*first, problem, key), choices);
  EXPECT_EQ(choices_of(*make_routing_source({}, problem), problem, key), choices);
  EXPECT_EQ(workload_checksum(*first, problem, 3), workload_checksum(*first, problem, 3));
}

TEST(Workload, threads_that_ask_at_once_get_the_same_answers) {
  const RoutingProblem problem = small_problem();
  const auto source = make_routing_source({}, problem);
  std::vector<std::uint64_t> sums(3);
  {
    std::vector<std::jthread> threads;
    for (auto& sum : sums) threads.emplace_back([&] { sum = workload_checksum(*source, problem, 4); });
  }
  EXPECT_THAT(sums, testing::Each(workload_checksum(*source, problem, 4)));
}

}  // namespace
}  // namespace spillway
