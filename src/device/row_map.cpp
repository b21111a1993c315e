#include "device/row_map.hpp"

#include <limits>
#include <numeric>

#include "base/error.hpp"

namespace spillway::device {
namespace {

/// Row numbers and elements of the router state are 32-bit.
void check_fits(std::int64_t count, const char* what) {
  ensure(count <= std::numeric_limits<std::int32_t>::max(), "row map: {} {} do not fit 32-bit numbers", count, what);
}

/// 1. what leaves in the whole dispatch: a counting sort of the slots by expert
void plan_sending(RowMap& map, const GateTable& table, int me) {
  const std::int64_t experts = table.experts;
  std::vector<std::int64_t> next(experts + 1, 0);
  for (std::int64_t e = 0; e < experts; ++e) next[e + 1] = next[e] + table.of(me, e);
  ensure(next[experts] == map.tokens * map.choices_per_token,
         "gate table: this rank's rows per expert add up to {}, but {} tokens choose {} experts each", next[experts],
         map.tokens, map.choices_per_token);
  const std::vector<std::int64_t> first = next;
  const std::int64_t slots = map.tokens * map.choices_per_token;
  check_fits(slots, "rows sent");
  check_fits(2 * map.tokens * experts, "elements of the router state");
  map.row_of_sent.resize(slots);
  std::iota(map.row_of_sent.begin(), map.row_of_sent.end(), 0);
  map.position.resize(slots);
  map.slot_of_sent.resize(slots);
  map.token_of_sent.resize(slots);
  map.weight_of_sent.resize(slots);
  map.weight_of_slot.resize(slots);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    const std::int64_t token = slot / map.choices_per_token, expert = map.choices[slot];
    ensure(expert >= 0 && expert < experts, "token {} chooses expert {} of {}", token, expert, experts);
    const std::int64_t row = next[expert]++;
    ensure(row < first[expert + 1], "gate table: expert {} got more tokens than the {} announced", expert,
           first[expert + 1] - first[expert]);
    map.position[slot] = static_cast<std::int32_t>(row);
    map.slot_of_sent[row] = static_cast<std::int32_t>(slot);
    map.token_of_sent[row] = static_cast<std::int32_t>(token);
    map.weight_of_slot[slot] = static_cast<std::int32_t>((map.tokens + token) * experts + expert);
    map.weight_of_sent[row] = map.weight_of_slot[slot];
  }
}

/// 2. what leaves in a slice: of the rows to every expert, a range
void cut_sending(RowMap& map, const GateTable& whole, const GateSlice& part, int me) {
  std::int64_t sent = 0, first = 0;  // first row to the expert, of the whole send order
  for (std::int64_t e = 0; e < whole.experts; ++e) {
    const std::int64_t begin = first + part.first[me * whole.experts + e];
    for (std::int64_t row = begin; row < begin + part.table.of(me, e); ++row, ++sent) {  // sent <= row
      map.row_of_sent[sent] = map.row_of_sent[row];
      map.slot_of_sent[sent] = map.slot_of_sent[row];
      map.token_of_sent[sent] = map.token_of_sent[row];
      map.weight_of_sent[sent] = map.weight_of_sent[row];
    }
    first += whole.of(me, e);
  }
  for (auto* rows : {&map.row_of_sent, &map.slot_of_sent, &map.token_of_sent, &map.weight_of_sent}) rows->resize(sent);
}

/// 3. what arrives: by source, then expert; computed by expert, then source
void plan_receiving(RowMap& map, const GateTable& table, int me) {
  const std::int64_t local = table.local_experts(), first_expert = me * local;
  map.sent_rows.assign(table.members, 0);
  for (std::int64_t e = 0; e < table.experts; ++e) map.sent_rows[e / local] += table.of(me, e);
  map.received_rows.assign(table.members, 0);
  map.offsets.assign(local + 1, 0);
  std::vector<std::int64_t> start(table.members * local);  // row in expert order of the first row of (source, expert)
  std::int64_t at = 0;
  for (std::int64_t g = 0; g < local; ++g) {
    for (std::int64_t source = 0; source < table.members; ++source) {
      const std::int64_t rows = table.of(source, first_expert + g);
      start[source * local + g] = at;
      map.received_rows[source] += rows;
      at += rows;
    }
    map.offsets[g + 1] = at;
    if (map.offsets[g + 1] > map.offsets[g]) ++map.active_experts;
  }
  check_fits(at, "rows received");
  map.expert_order.reserve(at);
  for (std::int64_t source = 0; source < table.members; ++source)
    for (std::int64_t g = 0; g < local; ++g)
      for (std::int64_t i = 0; i < table.of(source, first_expert + g); ++i)
        map.expert_order.push_back(static_cast<std::int32_t>(start[source * local + g] + i));
}

}  // namespace

RowMap make_row_map(Matrix<const std::int32_t> choices, Matrix<const std::int64_t> table, int me,
                    std::optional<Slice> slice) {
  const GateTable whole{{table.data, table.data + table.size()}, table.rows, table.cols};
  RowMap map;
  map.tokens = choices.rows;
  map.choices_per_token = choices.cols;
  map.choices.assign(choices.data, choices.data + choices.size());
  plan_sending(map, whole, me);
  if (!slice) {
    plan_receiving(map, whole, me);
    return map;
  }
  const GateSlice part = cut(whole, *slice);
  cut_sending(map, whole, part, me);
  plan_receiving(map, part.table, me);
  return map;
}

}  // namespace spillway::device
