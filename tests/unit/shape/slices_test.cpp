// Slices of a dispatch: every row once and in tile order, the same on all members, and never more than the worst case.
#include "workload/shape/slices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spillway {
namespace {

struct GroupShape {
  std::int64_t members, local, choices, tokens;  ///< tokens of every member
  std::int64_t experts() const { return members * local; }
  BlockContext context() const {
    BlockContext c;
    c.shape.num_experts = experts();
    c.shape.num_experts_per_tok = choices;
    c.sequence_length = tokens;
    c.expert_parallel = members;
    return c;
  }
};

GroupShape random_shape(const CounterRandom& random) {
  const auto from = [&](std::uint64_t at, std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(at, static_cast<std::uint64_t>(high - low + 1)));
  };
  const std::int64_t members = from(0, 1, 8), local = from(1, 1, 4);
  return {members, local, from(2, 1, std::min<std::int64_t>(4, members * local)), from(3, 0, 12)};
}

/// Every token of every member chooses k distinct experts, near a favourite the more, the larger `skew` of 0, 1, 2.
GateTable random_table(const CounterRandom& random, const GroupShape& shape, std::uint64_t skew) {
  GateTable table{std::vector<std::int64_t>(shape.members * shape.experts()), shape.members, shape.experts()};
  const std::int64_t experts = shape.experts();
  for (std::int64_t source = 0; source < shape.members; ++source)
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto at = static_cast<std::uint64_t>(source * shape.tokens + t);
      const auto reach = static_cast<std::uint64_t>(skew == 0 ? experts : skew == 1 ? (experts + 1) / 2 : 1);
      const auto first = static_cast<std::int64_t>(random.below(100, experts) + random.below(200 + at, reach));
      for (std::int64_t j = 0; j < shape.choices; ++j) ++table.rows[source * experts + (first + j) % experts];
    }
  return table;
}

/// A row: its expert, its source, its number among the rows from that source to that expert.
using Row = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

/// The tiles of a member, spelled out row by row.
std::vector<std::vector<Row>> listed_tiles(const GateTable& table, std::int64_t member, std::int64_t tile) {
  std::vector<std::vector<Row>> tiles;
  for (std::int64_t g = 0; g < table.local_experts(); ++g) {
    const std::int64_t expert = member * table.local_experts() + g;
    std::int64_t rows = 0;
    for (std::int64_t source = 0; source < table.members; ++source)
      for (std::int64_t i = 0; i < table.of(source, expert); ++i) {
        if (rows++ % tile == 0) tiles.emplace_back();
        tiles.back().emplace_back(expert, source, i);
      }
  }
  return tiles;
}

/// The rows that `part` holds of a member, in expert order.
std::vector<Row> listed_rows(const GateSlice& part, std::int64_t member) {
  std::vector<Row> rows;
  const GateTable& t = part.table;
  for (std::int64_t expert = member * t.local_experts(); expert < (member + 1) * t.local_experts(); ++expert)
    for (std::int64_t source = 0; source < t.members; ++source)
      for (std::int64_t i = 0; i < t.of(source, expert); ++i)
        rows.emplace_back(expert, source, part.first[source * t.experts + expert] + i);
  return rows;
}

/// Every slice holds its tiles, row by row, and all slices together every tile.
void expect_whole_tiles(const GateTable& table, std::int64_t per_slice, std::int64_t tile) {
  std::int64_t longest = 0;
  const std::int64_t count = slice_count(table, per_slice, tile);
  for (std::int64_t member = 0; member < table.members; ++member) {
    const auto all = listed_tiles(table, member, tile);
    ASSERT_EQ(tiles(table, member, tile), std::ssize(all));
    longest = std::max(longest, (std::ssize(all) + per_slice - 1) / per_slice);
    for (std::int64_t index = 0; index <= count; ++index) {  // one more than there are: empty everywhere
      std::vector<Row> expected;
      for (std::int64_t i = index * per_slice; i < std::min((index + 1) * per_slice, std::ssize(all)); ++i)
        expected.insert(expected.end(), all[i].begin(), all[i].end());
      ASSERT_EQ(listed_rows(cut(table, {per_slice, index, tile}), member), expected) << "slice " << index;
    }
  }
  ASSERT_EQ(count, longest);
}

/// Rows received, rows sent and active experts of every member are those of the rows listed, and within the worst case.
void expect_counts(const GateTable& table, const BlockContext& context, Slice slice) {
  const GateSlice part = cut(table, slice);
  const ExpertRows worst = worst_slice(context, slice.tiles_per_slice, slice.tile);
  std::vector<ExpertRows> expected(static_cast<std::size_t>(table.members), ExpertRows{0, 0, 0});
  for (std::int64_t member = 0; member < table.members; ++member) {
    std::int64_t expert_before = -1;
    for (const auto& [expert, source, i] : listed_rows(part, member)) {
      ++expected[member].rows;
      ++*expected[source].sent;
      expected[member].active += expert != expert_before;
      expert_before = expert;
    }
  }
  ASSERT_EQ(rows_in_slices(table, slice.tiles_per_slice, slice.tile)[slice.index], expected);
  for (std::int64_t member = 0; member < table.members; ++member) {
    ASSERT_EQ(slice_rows(table, member, slice), expected[member]);
    ASSERT_LE(expected[member].rows, worst.rows);
    ASSERT_LE(expected[member].active, worst.active);
    ASSERT_LE(*expected[member].sent, *worst.sent);
  }
}

TEST(Slices, ListingOfASmallGroup) {
  // Two members, two experts each, tiles of 2 rows. Expert 0 gets 3 + 2 rows (tiles 2 2 1), expert 1 gets 0 + 1 (tile 1),
  // expert 2 none, expert 3 gets 1 + 1 (tile 2).
  const GateTable table{{3, 0, 0, 1, 2, 1, 0, 1}, 2, 4};
  EXPECT_EQ(tiles(table, 0, 2), 4);
  EXPECT_EQ(tiles(table, 1, 2), 1);
  EXPECT_EQ(slice_count(table, 2, 2), 2);
  EXPECT_EQ(slice_count(table, 3, 2), 2);
  EXPECT_EQ(slice_count(table, 4, 2), 1);
  EXPECT_EQ(tiles(table, 0), 2);  // of the products' own tiles: one per expert with rows
  const GateSlice first = cut(table, {2, 0, 2}), second = cut(table, {2, 1, 2});
  EXPECT_EQ(first.table.rows, (std::vector<std::int64_t>{3, 0, 0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(second.table.rows, (std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(second.first[4], 1);  // member 1's second row for expert 0
  EXPECT_EQ(slice_rows(table, 0, {2, 0, 2}), (ExpertRows{4, 1, 4}));
  EXPECT_EQ(slice_rows(table, 0, {2, 1, 2}), (ExpertRows{2, 2, 0}));
  EXPECT_EQ(slice_rows(table, 1, {2, 0, 2}), (ExpertRows{2, 1, 2}));
  EXPECT_EQ(slice_rows(table, 1, {2, 1, 2}), (ExpertRows{0, 0, 2}));
  EXPECT_EQ(all_rows(table, 0), (ExpertRows{6, 2, {}}));
  EXPECT_EQ(all_rows(table, 1), (ExpertRows{2, 1, {}}));
}

TEST(Slices, RandomTablesAreCutIntoWholeTilesWithinTheWorstCase) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const CounterRandom random(seed);
    const GroupShape shape = random_shape(random);
    const GateTable table = random_table(random, shape, seed % 3);
    const std::int64_t tile = 1 + static_cast<std::int64_t>(random.below(4, 5));
    std::int64_t most = 1;
    for (std::int64_t member = 0; member < shape.members; ++member) {
      most = std::max(most, tiles(table, member, tile));
      ASSERT_LE(all_rows(table, member).rows, worst_rows(shape.context()).rows);
      ASSERT_LE(all_rows(table, member).active, worst_rows(shape.context()).active);
    }
    for (const std::int64_t per_slice : {std::int64_t{1}, std::int64_t{2}, (most + 1) / 2, most, most + 1}) {
      SCOPED_TRACE(fmt::format("seed {}, {} tiles of {} rows per slice", seed, per_slice, tile));
      ASSERT_NO_FATAL_FAILURE(expect_whole_tiles(table, per_slice, tile));
      for (std::int64_t index = 0; index < slice_count(table, per_slice, tile); ++index)
        ASSERT_NO_FATAL_FAILURE(expect_counts(table, shape.context(), {per_slice, index, tile}));
    }
  }
}

TEST(Slices, AnyShareOfTheRowsMayComeFromOneSourceOrNone) {
  // Members need not have the same number of tokens, nor an expert any rows.
  const GateTable one_expert{{0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0}, 2, 6};
  for (const std::int64_t per_slice : {1, 2, 3, 4, 5}) expect_whole_tiles(one_expert, per_slice, 2);
  EXPECT_EQ(slice_count(one_expert, 1, 2), 5);
  EXPECT_EQ(slice_rows(one_expert, 1, {1, 4, 2}), (ExpertRows{1, 1, 0}));
  EXPECT_EQ(slice_rows(one_expert, 0, {1, 4, 2}), (ExpertRows{0, 0, 1}));
  const GateTable nothing{std::vector<std::int64_t>(12), 2, 6};
  EXPECT_EQ(slice_count(nothing, 1, 2), 0);
  EXPECT_EQ(slice_rows(nothing, 0, {1, 0, 2}), (ExpertRows{0, 0, 0}));
}

/// Calls f(table) for every table that k distinct experts per token allow, unless there are more than `limit`.
void for_each_table(const GroupShape& shape, std::int64_t limit, const std::function<void(const GateTable&)>& f) {
  std::vector<std::vector<std::int64_t>> of_a_source;
  std::vector<std::int64_t> row(static_cast<std::size_t>(shape.experts()));
  const std::function<void(std::int64_t, std::int64_t)> fill = [&](std::int64_t expert, std::int64_t left) {
    if (expert == shape.experts()) {
      if (left == 0) of_a_source.push_back(row);
      return;
    }
    for (std::int64_t rows = 0; rows <= std::min(shape.tokens, left); ++rows) {
      row[expert] = rows;
      fill(expert + 1, left - rows);
    }
  };
  fill(0, shape.choices * shape.tokens);
  std::int64_t tables = 1;
  for (std::int64_t m = 0; m < shape.members && tables <= limit; ++m) tables *= std::ssize(of_a_source);
  if (tables > limit) return;
  for (std::int64_t number = 0; number < tables; ++number) {
    GateTable table{{}, shape.members, shape.experts()};
    std::int64_t rest = number;
    for (std::int64_t m = 0; m < shape.members; ++m, rest /= std::ssize(of_a_source)) {
      const auto& choice = of_a_source[rest % std::ssize(of_a_source)];
      table.rows.insert(table.rows.end(), choice.begin(), choice.end());
    }
    f(table);
  }
}

ExpertRows larger(const ExpertRows& a, const ExpertRows& b) {
  return {std::max(a.rows, b.rows), std::max(a.active, b.active), std::max(*a.sent, *b.sent)};
}

/// The largest of every field over all tables, slices and members; nothing where there are too many tables.
std::optional<ExpertRows> worst_of_all_tables(const GroupShape& shape, std::int64_t per_slice, std::int64_t tile) {
  std::optional<ExpertRows> worst;
  for_each_table(shape, 1500, [&](const GateTable& table) {
    worst = worst.value_or(ExpertRows{0, 0, 0});
    for (const auto& slice : rows_in_slices(table, per_slice, tile))
      for (const ExpertRows& rows : slice) worst = larger(*worst, rows);
  });
  return worst;
}

TEST(Slices, WorstCaseIsAttainedBySomeTableAndExceededByNone) {
  int attained = 0, bounded = 0;
  for (std::int64_t members = 1; members <= 3; ++members)
    for (std::int64_t local = 1; local <= 3; ++local)
      for (std::int64_t tokens = 1; tokens <= 4; ++tokens)
        for (std::int64_t k = 1; k <= std::min<std::int64_t>(3, members * local); ++k)
          for (std::int64_t tile = 1; tile <= 3; ++tile)
            for (std::int64_t per_slice = 1; per_slice <= 4; ++per_slice) {
              const GroupShape shape{members, local, k, tokens};
              const auto worst = worst_of_all_tables(shape, per_slice, tile);
              if (!worst) continue;
              const ExpertRows bound = worst_slice(shape.context(), per_slice, tile);
              SCOPED_TRACE(fmt::format("{} x {} experts, {} tokens, k {}, {} tiles of {}", members, local, tokens, k,
                                       per_slice, tile));
              ASSERT_EQ(larger(*worst, bound), bound);
              if (k > shape.experts() - local) {
                ++bounded;
                continue;
              }
              ++attained;
              ASSERT_EQ(*worst, bound);
            }
  EXPECT_GT(attained, 200);
  EXPECT_GT(bounded, 100);
}

TEST(Slices, WorstCaseOfTheWholeDispatchIsEveryTokenOfTheGroupAtOneRank) {
  // 64 ranks of 2 experts, 6 chosen, 2048 tokens each: both experts get every token.
  GroupShape shape{64, 2, 6, 2048};
  EXPECT_EQ(worst_rows(shape.context()), (ExpertRows{64 * 2048 * 2, 2, {}}));
  EXPECT_EQ(worst_slice(shape.context(), 10), (ExpertRows{10 * row_tile, 2, 6 * 2048}));
  EXPECT_EQ(worst_slice(shape.context(), 1'000'000), (ExpertRows{64 * 2048 * 2, 2, 6 * 2048}));
  shape = {4, 8, 2, 100};  // fewer choices than experts of a rank
  EXPECT_EQ(worst_rows(shape.context()), (ExpertRows{4 * 100 * 2, 8, {}}));
  EXPECT_EQ(worst_slice(shape.context(), 1, 16), (ExpertRows{16, 1, 4 * 16}));
  shape.tokens = 0;
  EXPECT_EQ(worst_rows(shape.context()), (ExpertRows{0, 0, {}}));
  EXPECT_EQ(worst_slice(shape.context(), 3), (ExpertRows{0, 0, 0}));
}

TEST(Slices, OneTableAnswersInAnyOrderForAllMembersAndForOne) {
  for (std::int64_t members = 1; members <= 9; ++members) {
    GateTable table{{}, members, 3 * members};
    const CounterRandom random(static_cast<std::uint64_t>(members), 7);
    for (std::int64_t n = 0; n < members * table.experts; ++n)
      table.rows.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n), 6)));
    DispatchRows rows(table, 3);
    EXPECT_EQ(rows.whole(), rows_of_members(table));
    for (const std::int64_t per_slice : {2, 5, 2, 1, 100, 1})
      for (std::int64_t member = members - 1; member >= 0; --member) {
        const DispatchRows::Slices& all = rows.in_slices(per_slice);
        ASSERT_EQ(all, rows_in_slices(table, per_slice, 3));
        ASSERT_EQ(std::ssize(all), rows.slice_count(per_slice));
        std::vector<ExpertRows> its;
        for (const auto& slice : all) its.push_back(slice[member]);
        ASSERT_EQ(rows.in_slices_of(member, per_slice), its) << members << " members, " << per_slice << " tiles";
      }
  }
}

TEST(Slices, NumbersThatMakeNoSenseAreRefused) {
  const GateTable table{{1, 2, 3, 4}, 2, 2};
  EXPECT_THROW(cut(table, {0, 0}), InternalError);
  EXPECT_THROW(cut(table, {1, -1}), InternalError);
  EXPECT_THROW(cut(table, {1, 0, 0}), InternalError);
  EXPECT_THROW(slice_count(table, 0), InternalError);
  EXPECT_THROW(tiles(table, 2), InternalError);
  EXPECT_THROW(slice_rows(table, -1, {1, 0}), InternalError);
  EXPECT_THROW(all_rows(table, 2), InternalError);
  EXPECT_THROW(tiles({{1, 2, 3}, 2, 2}, 0), InternalError);
  EXPECT_THROW(tiles({{1, 2, 3, -4}, 2, 2}, 0), InternalError);
  EXPECT_THROW(tiles({{1, 2, 3, 4, 5, 6}, 2, 3}, 0), InternalError);
  EXPECT_THROW(tiles({}, 0), InternalError);
}

}  // namespace
}  // namespace spillway
