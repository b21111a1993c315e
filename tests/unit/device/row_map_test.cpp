// Where rows go: nothing is lost or invented, everybody agrees on the order, and a wrong table is noticed.
#include "device/row_map.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.hpp"
#include "row_map_fixtures.hpp"

namespace spillway::device {
namespace {

void expect_sound(const ExpertGroup& group) {
  // 1. every (token, choice) arrives once, at its expert; an expert's rows lie in the order of source, then token
  const auto computed = dispatch(group, group.maps);
  std::int64_t arrived = 0;
  for (std::int64_t to = 0; to < group.shape.members; ++to) {
    const RowMap& map = group.maps[to];
    std::int64_t active = 0;
    for (std::int64_t g = 0; g < group.local(); ++g) {
      std::vector<Row> expected;
      const auto expert = static_cast<std::int32_t>(to * group.local() + g);
      for (std::int64_t from = 0; from < group.shape.members; ++from)
        for (std::int64_t slot = 0; slot < std::ssize(group.choices[from]); ++slot)
          if (group.choices[from][slot] == expert) expected.emplace_back(from, slot / group.shape.choices, expert);
      const auto begin = computed[to].begin();
      ASSERT_EQ(std::vector<Row>(begin + map.offsets[g], begin + map.offsets[g + 1]), expected) << "expert " << expert;
      active += !expected.empty();
      arrived += std::ssize(expected);
    }
    ASSERT_EQ(map.active_experts, active);
  }
  const std::int64_t tokens = std::accumulate(group.shape.tokens.begin(), group.shape.tokens.end(), std::int64_t{0});
  ASSERT_EQ(arrived, tokens * group.shape.choices);
  // 2. on the sender, slot -> row and row -> slot are inverse, and weights are found where the router put them
  for (std::int64_t m = 0; m < group.shape.members; ++m) {
    const RowMap& map = group.maps[m];
    for (std::int64_t slot = 0; slot < std::ssize(map.position); ++slot) {
      const std::int64_t token = slot / map.choices_per_token, row = map.position[slot];
      ASSERT_EQ(map.slot_of_sent[row], slot);
      ASSERT_EQ(map.token_of_sent[row], token);
      ASSERT_EQ(map.weight_of_slot[slot], (map.tokens + token) * group.shape.experts + group.choices[m][slot]);
      ASSERT_EQ(map.weight_of_sent[row], map.weight_of_slot[slot]);
    }
  }
}

TEST(RowMap, RandomChoicesArriveOnceInExpertThenSourceThenTokenOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const CounterRandom random(seed);
    GroupShape shape;
    shape.members = 1 + static_cast<std::int64_t>(random.below(0, 5));
    shape.experts = shape.members * (1 + static_cast<std::int64_t>(random.below(1, 4)));
    shape.choices = 1 + static_cast<std::int64_t>(random.below(2, static_cast<std::uint64_t>(shape.experts)));
    for (std::int64_t m = 0; m < shape.members; ++m)
      shape.tokens.push_back(static_cast<std::int64_t>(random.below(10 + m, 12)));
    SCOPED_TRACE(seed);
    expect_sound(ExpertGroup(shape, [&](std::int64_t m, std::int64_t t) {
      return distinct_experts(random, 1 + m * 100 + t, shape);
    }));
  }
}

TEST(RowMap, ListingOfASmallGroup) {
  // Two members, two experts each, one choice; member 0's tokens choose 3 0 2, member 1's 0 0.
  const std::vector<std::vector<std::int32_t>> chosen = {{3, 0, 2}, {0, 0}};
  const ExpertGroup group({2, 4, 1, {3, 2}}, [&](std::int64_t m, std::int64_t t) { return std::vector{chosen[m][t]}; });
  const RowMap& sender = group.maps[0];
  EXPECT_EQ(sender.sent_rows, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(sender.token_of_sent, (std::vector<std::int32_t>{1, 2, 0}));
  EXPECT_EQ(sender.position, (std::vector<std::int32_t>{2, 0, 1}));
  EXPECT_EQ(sender.received_rows, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(sender.offsets, (std::vector<std::int64_t>{0, 3, 3}));
  EXPECT_EQ(group.maps[1].offsets, (std::vector<std::int64_t>{0, 1, 2}));
}

// Reported elsewhere: ranks and experts without tokens skipped their part, or were given matrices of no shape.
TEST(Reports10, ExpertAndRankWithoutRowsHaveEmptyPartsOfTheRightShape) {
  const ExpertGroup group({3, 6, 2, {4, 0, 4}}, [](std::int64_t, std::int64_t) {
    return std::vector<std::int32_t>{1, 4};
  });
  expect_sound(group);
  EXPECT_EQ(group.maps[1].rows(), 0);  // member 1's experts 2 and 3 are never chosen, and it has no tokens
  EXPECT_EQ(group.maps[1].offsets, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(group.maps[1].sent_rows, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(group.maps[1].received_rows, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(group.maps[1].active_experts, 0);
  EXPECT_EQ(group.maps[0].offsets, (std::vector<std::int64_t>{0, 0, 8}));  // expert 0 is empty, expert 1 has all
  EXPECT_EQ(group.maps[0].active_experts, 1);
}

// Reported elsewhere: one expert received everything into a buffer sized from the average.
TEST(Reports11, EverythingGoesToOneRankAndFitsExactly) {
  const ExpertGroup group({4, 8, 2, {5, 5, 5, 5}}, [](std::int64_t, std::int64_t) {
    return std::vector<std::int32_t>{4, 5};
  });
  expect_sound(group);
  EXPECT_EQ(group.maps[2].rows(), 4 * 5 * 2);  // four times the average
  EXPECT_EQ(group.maps[2].received_rows, (std::vector<std::int64_t>{10, 10, 10, 10}));
  for (const int other : {0, 1, 3}) EXPECT_EQ(group.maps[other].rows(), 0);
}

TEST(RowMap, TableThatContradictsTheChoicesIsRefused) {
  const ExpertGroup group({2, 4, 2, {3, 3}}, [](std::int64_t, std::int64_t t) {
    return t == 0 ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{2, 3};
  });
  const auto refuse = [&](std::vector<std::int64_t> table, std::vector<std::int32_t> choices) {
    EXPECT_THROW(make_row_map({choices.data(), 3, 2}, {table.data(), 2, 4}, 0), InternalError);
  };
  std::vector<std::int64_t> table = group.table;
  ++table[0];  // too many rows
  refuse(table, group.choices[0]);
  --table[0];
  --table[3];  // too few
  refuse(table, group.choices[0]);
  ++table[2];  // the right sum, a row at the wrong expert
  refuse(table, group.choices[0]);
  for (const std::int32_t wrong : {4, -1}) {
    std::vector<std::int32_t> choices = group.choices[0];
    choices[5] = wrong;
    refuse(group.table, choices);
  }
}

TEST(Reports12, MoreRowsThanRowNumbersHoldAreRefused) {
  const std::vector<std::int32_t> choices = {0};
  std::vector<std::int64_t> table = {1, 0, (std::int64_t{1} << 31) - 1, 0};  // with this member's, 2^31 rows arrive
  EXPECT_THROW(make_row_map({choices.data(), 1, 1}, {table.data(), 2, 2}, 0), InternalError);
}

}  // namespace
}  // namespace spillway::device
