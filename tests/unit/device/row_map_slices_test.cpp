// Row maps of slices: together they are the whole dispatch, tile by tile, and every member cuts it at the same places.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "row_map_fixtures.hpp"

namespace spillway::device {
namespace {

GateTable owned(const ExpertGroup& group) { return {group.table, group.shape.members, group.shape.experts}; }

std::vector<RowMap> slice_maps(const ExpertGroup& group, Slice slice) {
  std::vector<RowMap> maps;
  for (std::int64_t m = 0; m < group.shape.members; ++m)
    maps.push_back(make_row_map(group.choice_matrix(m), group.loads(), static_cast<int>(m), slice));
  return maps;
}

/// What the slice says of a member agrees with the counts that plans are made from, and with the whole map.
void expect_part_of(const RowMap& whole, const RowMap& part, const ExpertRows& counted) {
  ASSERT_EQ((ExpertRows{part.rows(), part.active_experts, part.rows_sent()}), counted);
  ASSERT_EQ(part.choices, whole.choices);
  ASSERT_EQ(part.position, whole.position);
  ASSERT_EQ(part.weight_of_slot, whole.weight_of_slot);
  for (const auto* sent : {&part.slot_of_sent, &part.token_of_sent, &part.weight_of_sent})
    ASSERT_EQ(std::ssize(*sent), part.rows_sent());
  ASSERT_EQ(std::accumulate(part.sent_rows.begin(), part.sent_rows.end(), std::int64_t{0}), part.rows_sent());
  ASSERT_TRUE(std::ranges::is_sorted(part.row_of_sent));  // hence by destination, expert, token
  for (std::int64_t i = 0; i < part.rows_sent(); ++i) {
    const std::int32_t row = part.row_of_sent[i];
    ASSERT_EQ(part.slot_of_sent[i], whole.slot_of_sent[row]);
    ASSERT_EQ(part.token_of_sent[i], whole.token_of_sent[row]);
    ASSERT_EQ(part.weight_of_sent[i], whole.weight_of_sent[row]);
  }
}

/// Sends the group's rows slice by slice; every member must compute what it computes of the whole dispatch, in the same
/// tiles, and send every row once.
void expect_same_dispatch(const ExpertGroup& group, std::int64_t per_slice, std::int64_t tile) {
  const std::int64_t members = group.shape.members, local = group.local();
  const auto whole = dispatch(group, group.maps);
  std::vector<std::vector<std::int32_t>> sent(members);
  std::vector<std::int64_t> done(members * local, 0);  // rows of every expert in the slices before
  const std::int64_t count = slice_count(owned(group), per_slice, tile);
  for (std::int64_t index = 0; index < count; ++index) {
    const Slice slice{per_slice, index, tile};
    const std::vector<RowMap> maps = slice_maps(group, slice);
    const auto computed = dispatch(group, maps);
    for (std::int64_t m = 0; m < members; ++m) {
      const RowMap& map = maps[m];
      ASSERT_NO_FATAL_FAILURE(expect_part_of(group.maps[m], map, slice_rows(owned(group), m, slice)));
      sent[m].insert(sent[m].end(), map.row_of_sent.begin(), map.row_of_sent.end());
      for (std::int64_t g = 0; g < local; ++g) {
        std::int64_t& before = done[m * local + g];
        const std::int64_t rows = map.offsets[g + 1] - map.offsets[g], first = group.maps[m].offsets[g] + before;
        if (rows == 0) continue;
        ASSERT_EQ(before % tile, 0) << "expert " << g << " of member " << m << " begins within a tile";
        ASSERT_LE(first + rows, group.maps[m].offsets[g + 1]);
        ASSERT_TRUE(std::equal(computed[m].begin() + map.offsets[g], computed[m].begin() + map.offsets[g + 1],
                               whole[m].begin() + first));
        before += rows;
      }
    }
  }
  for (std::int64_t m = 0; m < members; ++m) {
    std::ranges::sort(sent[m]);
    ASSERT_EQ(sent[m], group.maps[m].row_of_sent);
    for (std::int64_t g = 0; g < local; ++g)
      ASSERT_EQ(done[m * local + g], group.maps[m].offsets[g + 1] - group.maps[m].offsets[g]);
  }
}

TEST(RowMapSlices, TogetherAreTheWholeDispatchInTheSameTiles) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const CounterRandom random(seed);
    const std::int64_t members = 1 + static_cast<std::int64_t>(random.below(0, 8));
    GroupShape shape{members, members * (1 + static_cast<std::int64_t>(random.below(1, 4))), 1, {}};
    shape.choices = 1 + static_cast<std::int64_t>(random.below(2, std::min<std::uint64_t>(4, shape.experts)));
    for (std::int64_t m = 0; m < members; ++m)
      shape.tokens.push_back(static_cast<std::int64_t>(random.below(10 + m, 12)));
    const bool one_clique = seed % 4 == 3;  // everybody chooses the same experts
    const ExpertGroup group(shape, [&](std::int64_t m, std::int64_t t) {
      return distinct_experts(random, one_clique ? 1 : 1 + m * 100 + t, shape);
    });
    const std::int64_t tile = 1 + static_cast<std::int64_t>(random.below(3, 5));
    std::int64_t most = 1;
    for (std::int64_t m = 0; m < members; ++m) most = std::max(most, tiles(owned(group), m, tile));
    for (const std::int64_t per_slice : {std::int64_t{1}, std::int64_t{2}, (most + 1) / 2, most, most + 1}) {
      SCOPED_TRACE(fmt::format("seed {}, {} tiles of {} rows per slice", seed, per_slice, tile));
      ASSERT_NO_FATAL_FAILURE(expect_same_dispatch(group, per_slice, tile));
    }
  }
}

TEST(RowMapSlices, ListingOfASmallGroup) {
  // Two members of one expert each, one choice; tokens choose 1 0 0 and 0 1 0. Tiles of 2 rows, one per slice.
  const std::vector<std::vector<std::int32_t>> chosen = {{1, 0, 0}, {0, 1, 0}};
  const ExpertGroup group({2, 2, 1, {3, 3}}, [&](std::int64_t m, std::int64_t t) { return std::vector{chosen[m][t]}; });
  const RowMap first = make_row_map(group.choice_matrix(1), group.loads(), 1, Slice{1, 0, 2});
  EXPECT_EQ(first.sent_rows, (std::vector<std::int64_t>{0, 1}));  // expert 0's first tile is member 0's
  EXPECT_EQ(first.row_of_sent, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(first.token_of_sent, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(first.received_rows, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(first.offsets, (std::vector<std::int64_t>{0, 2}));
  const RowMap second = make_row_map(group.choice_matrix(1), group.loads(), 1, Slice{1, 1, 2});
  EXPECT_EQ(second.sent_rows, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(second.row_of_sent, (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(second.token_of_sent, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(second.rows(), 0);  // this member's tiles have run out, but it still sends
  EXPECT_EQ(second.active_experts, 0);
  EXPECT_EQ(second.position, group.maps[1].position);
}

TEST(RowMapSlices, AllTilesInOneSliceAreTheWholeMap) {
  const ExpertGroup group({3, 6, 2, {4, 0, 7}}, [](std::int64_t, std::int64_t t) {
    return std::vector<std::int32_t>{static_cast<std::int32_t>(t % 5), 5};
  });
  for (std::int64_t m = 0; m < 3; ++m) {
    const RowMap& whole = group.maps[m];
    const RowMap all = slice_maps(group, {100, 0})[m], none = slice_maps(group, {100, 1})[m];
    EXPECT_EQ(all.row_of_sent, whole.row_of_sent);
    EXPECT_EQ(all.slot_of_sent, whole.slot_of_sent);
    EXPECT_EQ(all.sent_rows, whole.sent_rows);
    EXPECT_EQ(all.received_rows, whole.received_rows);
    EXPECT_EQ(all.expert_order, whole.expert_order);
    EXPECT_EQ(all.offsets, whole.offsets);
    EXPECT_EQ(none.rows() + none.rows_sent(), 0);
    EXPECT_EQ(none.offsets, (std::vector<std::int64_t>{0, 0, 0}));
    for (std::int64_t row = 0; row < whole.rows_sent(); ++row) ASSERT_EQ(whole.row_of_sent[row], row);
  }
}

TEST(RowMapSlices, NumbersThatMakeNoSliceAreRefused) {
  const ExpertGroup group({2, 4, 1, {2, 2}}, [](std::int64_t, std::int64_t) { return std::vector<std::int32_t>{0}; });
  for (const Slice wrong : {Slice{0, 0}, Slice{1, -1}, Slice{1, 0, 0}})
    EXPECT_THROW(slice_maps(group, wrong), InternalError);
}

}  // namespace
}  // namespace spillway::device
