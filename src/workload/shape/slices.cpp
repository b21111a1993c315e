#include "workload/shape/slices.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace spillway {
namespace {

void check_tiles(std::int64_t tiles_per_slice, std::int64_t tile) {
  ensure(tiles_per_slice > 0 && tile > 0, "slices of {} tiles of {} rows: both are at least 1", tiles_per_slice, tile);
}

void check_member(const GateTable& t, std::int64_t member) {
  ensure(member >= 0 && member < t.members, "gate table: member {} of {}", member, t.members);
}

std::int64_t parts(std::int64_t whole, std::int64_t part) { return whole / part + (whole % part != 0); }

/// Adds the rows of `n` sources for every expert, and collects their signs.
template <std::size_t n>
void add(const std::int64_t* rows, std::vector<std::int64_t>& sums, std::int64_t& signs) {
  std::int64_t* const sum = sums.data();
  const std::size_t experts = sums.size();
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t of_all = sum[e];
    for (std::size_t k = 0; k < n; ++k) {
      of_all += rows[k * experts + e];
      signs |= rows[k * experts + e];
    }
    sum[e] = of_all;
  }
}

/// Sources that are gone through at once: sums are loaded and stored more rarely.
constexpr std::int64_t together = 4;

/// Rows that each expert receives, [experts], of a table that makes sense: everything below begins here, with one pass.
std::vector<std::int64_t> rows_received(const GateTable& t) {
  ensure(t.members > 0 && t.experts > 0 && t.experts % t.members == 0,
         "gate table: {} experts do not divide over {} members", t.experts, t.members);
  ensure(std::ssize(t.rows) == t.members * t.experts, "gate table: {} numbers for {} members x {} experts",
         t.rows.size(), t.members, t.experts);
  std::vector<std::int64_t> received(static_cast<std::size_t>(t.experts));
  std::int64_t signs = 0, source = 0;  // signs: negative as soon as one of the numbers is
  for (; source + together <= t.members; source += together)
    add<together>(t.rows.data() + source * t.experts, received, signs);
  for (; source < t.members; ++source) add<1>(t.rows.data() + source * t.experts, received, signs);
  if (signs < 0)
    throw InternalError(
        fmt::format("gate table: {} rows from a member to an expert", *std::ranges::min_element(t.rows)));
  return received;
}

/// Takes the rows of `n` sources, one after the other, for every expert from what is left of them, as far as it goes.
/// Returns what each source had taken.
template <std::size_t n>
std::array<std::int64_t, n> take(const std::int64_t* rows, std::vector<std::int64_t>& left) {
  std::array<std::int64_t, n> taken{};
  std::int64_t* const more = left.data();
  const std::size_t experts = left.size();
  for (std::size_t e = 0; e < experts; ++e) {
    std::int64_t rest = more[e];
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t here = std::min(rest, rows[k * experts + e]);
      taken[k] += here;
      rest -= here;
    }
    more[e] = rest;
  }
  return taken;
}

/// Most rows of `tiles` tiles where each of `experts` experts has at most `limit` rows: full tiles first, then the short
/// last tiles of experts that have no rows left.
std::int64_t most_rows(std::int64_t tiles, std::int64_t experts, std::int64_t limit, std::int64_t tile) {
  const std::int64_t full = std::min(tiles, experts * (limit / tile));
  return full * tile + std::min(tiles - full, experts) * (limit % tile);
}

}  // namespace

std::int64_t tiles(const GateTable& table, std::int64_t member, std::int64_t tile) {
  const std::vector<std::int64_t> received = rows_received(table);
  check_member(table, member);
  check_tiles(1, tile);
  const auto first = received.begin() + member * table.local_experts();
  std::int64_t sum = 0;
  for (auto rows = first; rows != first + table.local_experts(); ++rows) sum += parts(*rows, tile);
  return sum;
}

std::int64_t slice_count(const GateTable& table, std::int64_t tiles_per_slice, std::int64_t tile) {
  return DispatchRows(table, tile).slice_count(tiles_per_slice);
}

GateSlice cut(const GateTable& table, Slice slice) {
  const std::vector<std::int64_t> received = rows_received(table);
  check_tiles(slice.tiles_per_slice, slice.tile);
  ensure(slice.index >= 0, "slice {} of a dispatch: the first is 0", slice.index);
  GateSlice part{table, std::vector<std::int64_t>(table.rows.size())};
  const std::int64_t first_tile = slice.index * slice.tiles_per_slice, last_tile = first_tile + slice.tiles_per_slice;
  // 1. the slice's rows [begin, end) of every expert; past the last row where its last tile is short
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

DispatchRows::DispatchRows(const GateTable& table, std::int64_t tile)
    : table_(&table), tile_(tile), received_(rows_received(table)), whole_(static_cast<std::size_t>(table.members)) {
  check_tiles(1, tile);
  auto expert = received_.begin();
  for (ExpertRows& all : whole_)
    for (const auto end = expert + table.local_experts(); expert != end; ++expert) {
      all.rows += *expert;
      all.active += *expert > 0;
    }
}

std::int64_t DispatchRows::slice_count(std::int64_t tiles_per_slice) {
  check_tiles(tiles_per_slice, tile_);
  if (tiles_.empty()) {
    for (const std::int64_t rows : received_) tiles_.push_back(parts(rows, tile_));
    for (auto first = tiles_.begin(); first != tiles_.end(); first += table_->local_experts())
      most_tiles_ = std::max(most_tiles_, std::accumulate(first, first + table_->local_experts(), std::int64_t{0}));
  }
  return parts(most_tiles_, tiles_per_slice);
}

template <class Visit>
void DispatchRows::divide(std::int64_t member, std::int64_t tiles_per_slice, const Visit& visit) const {
  std::int64_t slice = 0, taken = 0;  // tiles of the slice
  for (std::int64_t e = member * table_->local_experts(); e < (member + 1) * table_->local_experts(); ++e) {
    std::int64_t rows = received_[e];
    for (std::int64_t tiles = tiles_[e]; tiles > 0;) {
      const std::int64_t here = std::min(tiles, tiles_per_slice - taken), of_slice = std::min(rows, here * tile_);
      visit(e, slice, of_slice);
      tiles -= here;
      rows -= of_slice;
      taken += here;
      if (taken == tiles_per_slice) taken = 0, ++slice;
    }
  }
}

std::vector<ExpertRows> DispatchRows::in_slices_of(std::int64_t member, std::int64_t tiles_per_slice) {
  check_member(*table_, member);
  const std::int64_t experts = table_->experts;
  const std::int64_t* const own = table_->rows.data() + member * experts;
  if (member != member_) {
    member_ = member;
    before_.assign(received_.size(), 0);
    for (const std::int64_t* rows = table_->rows.data(); rows != own; rows += experts)
      for (std::int64_t e = 0; e < experts; ++e) before_[e] += rows[e];
  }
  std::vector<ExpertRows> slices(static_cast<std::size_t>(slice_count(tiles_per_slice)), ExpertRows{0, 0, 0});
  std::int64_t last = -1, begin = 0;  // of the expert, the rows of slices before
  for (std::int64_t m = 0; m < table_->members; ++m)
    divide(m, tiles_per_slice, [&](std::int64_t expert, std::int64_t slice, std::int64_t rows) {
      begin = std::exchange(last, expert) == expert ? begin : 0;
      const std::int64_t end = begin + rows, from = before_[expert], to = from + own[expert];
      *slices[slice].sent += std::max<std::int64_t>(0, std::min(end, to) - std::max(begin, from));
      begin = end;
      if (m != member) return;
      slices[slice].rows += rows;
      ++slices[slice].active;
    });
  return slices;
}

const DispatchRows::Slices& DispatchRows::in_slices(std::int64_t tiles_per_slice) {
  if (tiles_per_slice == tiles_per_slice_) return slices_;
  const std::int64_t members = table_->members, experts = table_->experts, count = slice_count(tiles_per_slice);
  slices_.assign(static_cast<std::size_t>(count), std::vector<ExpertRows>(whole_.size(), ExpertRows{0, 0, 0}));
  // 1. received by every member; ends: how many more rows of an expert a slice takes [slices][experts]
  std::vector<std::int64_t> ends(static_cast<std::size_t>(count * experts));
  for (std::int64_t m = 0; m < members; ++m)
    divide(m, tiles_per_slice, [&](std::int64_t expert, std::int64_t slice, std::int64_t rows) {
      ExpertRows& mine = slices_[slice][m];
      mine.rows += rows;
      ++mine.active;
      ends[slice * experts + expert] = rows;
    });
  // 2. sent by every member: the rows of an expert are taken source by source, up to the end of each slice in turn, and
  // all up to the end of the last
  std::vector<std::int64_t> left(received_.size()), before(whole_.size());
  for (std::int64_t j = 0; j < count; ++j) {
    for (std::int64_t e = 0; e < experts; ++e)
      left[e] = ends[j * experts + e] += j > 0 ? ends[(j - 1) * experts + e] : 0;
    std::int64_t source = 0;
    const auto note = [&](std::int64_t sent) {
      slices_[j][source].sent = sent - std::exchange(before[source], sent);
      ++source;
    };
    const auto rows = [&] { return table_->rows.data() + source * experts; };
    if (j + 1 == count)
      while (source < members) note(std::accumulate(rows(), rows() + experts, std::int64_t{0}));
    while (source + together <= members)
      for (const std::int64_t sent : take<together>(rows(), left)) note(sent);
    while (source < members) note(take<1>(rows(), left)[0]);
  }
  tiles_per_slice_ = tiles_per_slice;
  return slices_;
}

DispatchRows::Slices rows_in_slices(const GateTable& table, std::int64_t tiles_per_slice, std::int64_t tile) {
  return DispatchRows(table, tile).in_slices(tiles_per_slice);
}

ExpertRows slice_rows(const GateTable& table, std::int64_t member, Slice slice) {
  check_member(table, member);
  ensure(slice.index >= 0, "slice {} of a dispatch: the first is 0", slice.index);
  const auto all = DispatchRows(table, slice.tile).in_slices_of(member, slice.tiles_per_slice);
  return slice.index < std::ssize(all) ? all[slice.index] : ExpertRows{0, 0, 0};
}

std::vector<ExpertRows> rows_of_members(const GateTable& table) { return DispatchRows(table).whole(); }

ExpertRows all_rows(const GateTable& table, std::int64_t member) {
  const std::vector<ExpertRows> members = rows_of_members(table);
  check_member(table, member);
  return members[member];
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

ExpertRows largest(std::span<const ExpertRows> members) {
  return *std::max_element(members.begin(), members.end(), [](auto& a, auto& b) { return a.rows < b.rows; });
}

double max_over_mean(std::span<const ExpertRows> members) {
  std::int64_t total = 0;
  for (const ExpertRows& member : members) total += member.rows;
  return static_cast<double>(largest(members).rows) * static_cast<double>(members.size()) / static_cast<double>(total);
}

double max_over_mean(const GateTable& table) { return max_over_mean(rows_of_members(table)); }

}  // namespace spillway
