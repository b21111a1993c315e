#include "device/row_map.hpp"

#include <limits>

#include "base/error.hpp"

namespace spillway::device {
namespace {

/// Row numbers and elements of the router state are 32-bit.
void check_fits(std::int64_t count, const char* what) {
  ensure(count <= std::numeric_limits<std::int32_t>::max(), "row map: {} {} do not fit 32-bit numbers", count, what);
}

/// 1. what leaves: a counting sort of the slots by expert
void plan_sending(RowMap& map, Matrix<const std::int64_t> table, int me) {
  const std::int64_t experts = table.cols, local = experts / table.rows;
  std::vector<std::int64_t> next(experts + 1, 0);
  for (std::int64_t e = 0; e < experts; ++e) next[e + 1] = next[e] + table.row(me)[e];
  ensure(next[experts] == map.tokens * map.choices_per_token,
         "gate table: this rank's rows per expert add up to {}, but {} tokens choose {} experts each", next[experts],
         map.tokens, map.choices_per_token);
  const std::vector<std::int64_t> first = next;
  const std::int64_t slots = map.tokens * map.choices_per_token;
  check_fits(slots, "rows sent");
  check_fits(2 * map.tokens * experts, "elements of the router state");
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
  map.sent_rows.assign(table.rows, 0);
  for (std::int64_t e = 0; e < experts; ++e) map.sent_rows[e / local] += table.row(me)[e];
}

/// 2. what arrives: by source, then expert; computed by expert, then source
void plan_receiving(RowMap& map, Matrix<const std::int64_t> table, int me) {
  const std::int64_t local = table.cols / table.rows, first_expert = me * local;
  map.received_rows.assign(table.rows, 0);
  map.offsets.assign(local + 1, 0);
  std::vector<std::int64_t> start(table.rows * local);  // row in expert order of the first row of (source, expert)
  std::int64_t at = 0;
  for (std::int64_t g = 0; g < local; ++g) {
    for (std::int64_t source = 0; source < table.rows; ++source) {
      const std::int64_t rows = table.row(source)[first_expert + g];
      start[source * local + g] = at;
      map.received_rows[source] += rows;
      at += rows;
    }
    map.offsets[g + 1] = at;
    if (map.offsets[g + 1] > map.offsets[g]) ++map.active_experts;
  }
  check_fits(at, "rows received");
  map.expert_order.reserve(at);
  for (std::int64_t source = 0; source < table.rows; ++source)
    for (std::int64_t g = 0; g < local; ++g)
      for (std::int64_t i = 0; i < table.row(source)[first_expert + g]; ++i)
        map.expert_order.push_back(static_cast<std::int32_t>(start[source * local + g] + i));
}

}  // namespace

RowMap make_row_map(Matrix<const std::int32_t> choices, Matrix<const std::int64_t> table, int me) {
  RowMap map;
  map.tokens = choices.rows;
  map.choices_per_token = choices.cols;
  map.choices.assign(choices.data, choices.data + choices.size());
  plan_sending(map, table, me);
  plan_receiving(map, table, me);
  return map;
}

}  // namespace spillway::device
