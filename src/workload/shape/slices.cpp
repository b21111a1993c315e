#include "workload/shape/slices.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace spillway {
namespace {

void check(const GateTable& t) {
  ensure(t.members > 0 && t.experts > 0 && t.experts % t.members == 0,
         "gate table: {} experts do not divide over {} members", t.experts, t.members);
  ensure(std::ssize(t.rows) == t.members * t.experts, "gate table: {} numbers for {} members x {} experts",
         t.rows.size(), t.members, t.experts);
  const std::int64_t fewest = *std::ranges::min_element(t.rows);
  ensure(fewest >= 0, "gate table: {} rows from a member to an expert", fewest);
}

void check_tiles(std::int64_t tiles_per_slice, std::int64_t tile) {
  ensure(tiles_per_slice > 0 && tile > 0, "slices of {} tiles of {} rows: both are at least 1", tiles_per_slice, tile);
}

void check_member(const GateTable& t, std::int64_t member) {
  ensure(member >= 0 && member < t.members, "gate table: member {} of {}", member, t.members);
}

std::int64_t parts(std::int64_t whole, std::int64_t part) { return whole / part + (whole % part != 0); }

/// Rows that each expert receives, [experts].
std::vector<std::int64_t> rows_received(const GateTable& t) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(t.experts));
  for (std::int64_t source = 0; source < t.members; ++source)
    for (std::int64_t expert = 0; expert < t.experts; ++expert) rows[expert] += t.of(source, expert);
  return rows;
}

/// Tiles of each member, [members].
std::vector<std::int64_t> tiles_of_members(const GateTable& t, std::int64_t tile) {
  const std::vector<std::int64_t> received = rows_received(t);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(t.members));
  for (std::int64_t expert = 0; expert < t.experts; ++expert)
    sums[expert / t.local_experts()] += parts(received[expert], tile);
  return sums;
}

/// Most rows of `tiles` tiles where each of `experts` experts has at most `limit` rows: full tiles first, then the short
/// last tiles of experts that have no rows left.
std::int64_t most_rows(std::int64_t tiles, std::int64_t experts, std::int64_t limit, std::int64_t tile) {
  const std::int64_t full = std::min(tiles, experts * (limit / tile));
  return full * tile + std::min(tiles - full, experts) * (limit % tile);
}

}  // namespace

std::int64_t tiles(const GateTable& table, std::int64_t member, std::int64_t tile) {
  check(table);
  check_member(table, member);
  check_tiles(1, tile);
  return tiles_of_members(table, tile)[member];
}

std::int64_t slice_count(const GateTable& table, std::int64_t tiles_per_slice, std::int64_t tile) {
  check(table);
  check_tiles(tiles_per_slice, tile);
  return parts(std::ranges::max(tiles_of_members(table, tile)), tiles_per_slice);
}

GateSlice cut(const GateTable& table, Slice slice) {
  check(table);
  check_tiles(slice.tiles_per_slice, slice.tile);
  ensure(slice.index >= 0, "slice {} of a dispatch: the first is 0", slice.index);
  GateSlice part{table, std::vector<std::int64_t>(table.rows.size())};
  const std::int64_t first_tile = slice.index * slice.tiles_per_slice, last_tile = first_tile + slice.tiles_per_slice;
  // 1. the slice's rows [begin, end) of every expert; past the last row where its last tile is short
  const std::vector<std::int64_t> received = rows_received(table);
  std::vector<std::int64_t> begin(received.size()), end(received.size());
  std::int64_t tile = 0;  // of the member, the first one of the expert
  for (std::int64_t expert = 0; expert < table.experts; ++expert) {
    if (expert % table.local_experts() == 0) tile = 0;
    const std::int64_t tiles = parts(received[expert], slice.tile);
    begin[expert] = std::clamp(first_tile - tile, std::int64_t{0}, tiles) * slice.tile;
    end[expert] = std::clamp(last_tile - tile, std::int64_t{0}, tiles) * slice.tile;
    tile += tiles;
  }
  // 2. of every source, counted from its first row for the expert
  for (std::int64_t source = 0; source < table.members; ++source)
    for (std::int64_t expert = 0; expert < table.experts; ++expert) {
      const std::int64_t at = source * table.experts + expert, count = table.rows[at];
      part.first[at] = std::clamp(begin[expert], std::int64_t{0}, count);
      part.table.rows[at] = std::clamp(end[expert], std::int64_t{0}, count) - part.first[at];
      begin[expert] -= count;
      end[expert] -= count;
    }
  return part;
}

std::vector<ExpertRows> slice_rows(const GateTable& table, Slice slice) {
  const GateTable part = cut(table, slice).table;
  std::vector<ExpertRows> members;
  for (std::int64_t m = 0; m < table.members; ++m) {
    const auto sent = part.rows.begin() + m * table.experts;
    members.push_back({0, 0, std::accumulate(sent, sent + table.experts, std::int64_t{0})});
  }
  const std::vector<std::int64_t> received = rows_received(part);
  for (std::int64_t expert = 0; expert < table.experts; ++expert) {
    members[expert / table.local_experts()].rows += received[expert];
    members[expert / table.local_experts()].active += received[expert] > 0;
  }
  return members;
}

ExpertRows slice_rows(const GateTable& table, std::int64_t member, Slice slice) {
  check_member(table, member);
  return slice_rows(table, slice)[member];
}

ExpertRows all_rows(const GateTable& table, std::int64_t member) {
  check(table);
  check_member(table, member);
  const std::vector<std::int64_t> received = rows_received(table);
  ExpertRows all;
  for (std::int64_t g = 0; g < table.local_experts(); ++g) {
    all.rows += received[member * table.local_experts() + g];
    all.active += received[member * table.local_experts() + g] > 0;
  }
  return all;
}

ExpertRows worst_rows(const BlockContext& c) {
  const std::int64_t group_tokens = c.local_tokens() * c.expert_parallel, k = c.shape.num_experts_per_tok;
  return {group_tokens * std::min(k, c.local_experts()), std::min(c.local_experts(), group_tokens * k), {}};
}

ExpertRows worst_slice(const BlockContext& c, std::int64_t tiles_per_slice, std::int64_t tile) {
  check_tiles(tiles_per_slice, tile);
  const ExpertRows whole = worst_rows(c);
  const std::int64_t local = c.local_experts(), tokens = c.local_tokens();
  return {std::min(whole.rows, most_rows(tiles_per_slice, local, tokens * c.expert_parallel, tile)),
          std::min(whole.active, tiles_per_slice),
          std::min(c.routed_rows(), c.expert_parallel * most_rows(tiles_per_slice, local, tokens, tile))};
}

ExpertRows largest_rows(const GateTable& table) {
  ExpertRows largest = all_rows(table, 0);
  for (std::int64_t m = 1; m < table.members; ++m) {
    const ExpertRows rows = all_rows(table, m);
    if (rows.rows > largest.rows) largest = rows;
  }
  return largest;
}

double max_over_mean(const GateTable& table) {
  std::int64_t most = 0, total = 0;
  for (std::int64_t m = 0; m < table.members; ++m) {
    const std::int64_t rows = all_rows(table, m).rows;
    most = std::max(most, rows);
    total += rows;
  }
  return static_cast<double>(most) * static_cast<double>(table.members) / static_cast<double>(total);
}

}  // namespace spillway
