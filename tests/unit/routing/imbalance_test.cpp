#include "workload/routing/imbalance.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace spillway {
namespace {

/// Rows given by a formula, to check the grouping with.
class FormulaSource final : public RoutingSource {
 public:
  explicit FormulaSource(std::function<std::int32_t(RoutingKey, std::int64_t expert)> rows) : rows_(std::move(rows)) {}
  void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const override {
    for (std::size_t e = 0; e < rows.size(); ++e) rows[e] = rows_(key, static_cast<std::int64_t>(e));
  }
  void choices(RoutingKey, std::span<std::int32_t>) const override {}
  bool in_burst(std::int64_t) const override { return false; }

 private:
  std::function<std::int32_t(RoutingKey, std::int64_t)> rows_;
};

TEST(Imbalance, a_unit_is_the_mean_over_layers_of_max_over_mean) {
  const std::vector<std::int64_t> rows{10, 30, 20, 20, 0, 0};  // three layers, two ranks: 1.5, 1, nothing
  EXPECT_DOUBLE_EQ(unit_imbalance(rows, 2), (1.5 + 1 + 1) / 3);
}

TEST(Imbalance, statistics_keep_maximum_and_mean) {
  ImbalanceStatistics statistics;
  for (const double value : {1.2, 1.8, 1.5}) statistics.add(value);
  EXPECT_DOUBLE_EQ(statistics.max, 1.8);
  EXPECT_DOUBLE_EQ(statistics.mean, 1.5);
  EXPECT_EQ(statistics.units, 3);
}

TEST(Imbalance, sequences_of_a_unit_are_consecutive_and_ranks_hold_contiguous_experts) {
  // Sequence q sends 4 rows to expert q mod 4: alone it loads one of two ranks, two neighbours (0, 1) the same one.
  const FormulaSource source([](RoutingKey key, std::int64_t e) { return e == key.sequence % 4 ? 4 : 0; });
  const RoutingProblem problem{4, 1, 1, 4, 8};
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 1, 1}, 0).max, 2);
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 2, 1}, 0).max, 2);
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 4, 1}, 0).max, 1);
  EXPECT_EQ(iteration_imbalance(source, problem, {2, 2, 1}, 0).units, 4);
}

TEST(Imbalance, the_mean_is_over_the_layers_of_one_stage) {
  // Layer 3 of four is skewed (2), the others even: one stage 1.25, two stages 1 and 1.5, four stages 2 at most.
  const FormulaSource source([](RoutingKey key, std::int64_t e) { return key.layer < 3 ? 2 : e == 0 ? 4 : 0; });
  const RoutingProblem problem{2, 1, 4, 4, 2};
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 2, 1}, 0).max, 1.25);
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 2, 2}, 0).max, 1.5);
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 2, 4}, 0).max, 2);
  EXPECT_DOUBLE_EQ(iteration_imbalance(source, problem, {2, 2, 4}, 0).mean, 1.25);
}

}  // namespace
}  // namespace spillway
