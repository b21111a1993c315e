// Decisions made elsewhere: found again, sent as numbers, carried out by replay.
#include "plan/policy/decision_table.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

Decision random_decision(std::uint64_t seed) {
  Decision d{random_mitigations(seed), random_mitigations(seed + 100)};
  d.after.tiles_per_slice = static_cast<std::int64_t>(seed % 3);
  return d;
}

DecisionTable some_decisions() {
  DecisionTable table;
  for (std::int64_t iteration = 0; iteration < 2; ++iteration)
    for (std::int64_t mb = 0; mb < 3; ++mb)
      for (std::int64_t block = 0; block < 2; ++block)
        table.set({iteration, mb, block}, random_decision(static_cast<std::uint64_t>(iteration * 6 + mb * 2 + block)));
  return table;
}

TEST(DecisionTable, FindsWhatWasDecidedAndNothingElse) {
  DecisionTable table = some_decisions();
  ASSERT_NE(table.find({1, 2, 0}), nullptr);
  EXPECT_EQ(table.find({1, 2, 0})->before, random_decision(10).before);
  EXPECT_EQ(table.find({1, 2, 0})->after, random_decision(10).after);
  EXPECT_EQ(table.find({2, 0, 0}), nullptr);
  EXPECT_EQ(table.find({0, 0, 2}), nullptr);
  table.set({1, 2, 0}, random_decision(50));
  EXPECT_EQ(table.find({1, 2, 0})->after, random_decision(50).after) << "decided anew";
}

TEST(DecisionTable, OneIterationOfIt) {
  const DecisionTable part = some_decisions().of_iteration(1);
  EXPECT_NE(part.find({1, 0, 0}), nullptr);
  EXPECT_EQ(part.find({0, 0, 0}), nullptr);
}

TEST(DecisionTable, TravelsAsNumbersWithoutLoss) {
  std::vector<std::int64_t> numbers;
  some_decisions().append_to(numbers);
  EXPECT_EQ(numbers.size(), 12u * 11u);  // a key of 3, twice three sets and the slices
  DecisionTable table;
  table.add_from(numbers);
  for (std::int64_t n = 0; n < 12; ++n) {
    const Decision* d = table.find({n / 6, n / 2 % 3, n % 2});
    ASSERT_NE(d, nullptr);
    EXPECT_EQ(d->before, random_decision(static_cast<std::uint64_t>(n)).before);
    EXPECT_EQ(d->after, random_decision(static_cast<std::uint64_t>(n)).after);
  }
}

TEST(Replay, CarriesOutTheDecisionOfTheSituation) {
  const auto table = std::make_shared<DecisionTable>();
  Decision d = random_decision(3);
  d.before.tiles_per_slice = 0;
  table->set({0, 0, 0}, d);
  PolicyOptions options;
  options.decisions = table;
  const auto replay = make_policy("replay", options);
  StepPlan plan(stage_of({{BlockKind::dense, 0, moe_block(1, 8, Inventory::lean)}},
                         {{Task::Kind::forward, 0}, {Task::Kind::backward, 0}, {Task::Kind::forward, 1}}),
                *replay);
  plan.begin_iteration(0);
  while (plan.current().kind != Item::Kind::forward) plan.advance();
  plan.decide(0, 0);
  EXPECT_EQ(plan.mitigations(0, 0), d.before);
  do plan.advance();
  while (plan.current().kind != Item::Kind::forward);
  try {
    plan.decide(1, 0);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("iteration 0, micro-batch 1, block 0"));
  }
}

TEST(Replay, WithoutDecisionsSaysWhichIsMissing) { EXPECT_THROW(decision("replay", BlockKind::dense, {}), InputError); }

}  // namespace
}  // namespace spillway
