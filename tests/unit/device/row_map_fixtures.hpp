#pragma once
// An expert group in one process: everybody's choices and row maps, and the rows on their way.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/random.hpp"
#include "device/row_map.hpp"

namespace spillway::device {

struct GroupShape {
  std::int64_t members, experts, choices;
  std::vector<std::int64_t> tokens;  ///< per member
};

/// An expert group: everybody's choices, the table they give, everybody's map.
struct ExpertGroup {
  using Choose = std::function<std::vector<std::int32_t>(std::int64_t member, std::int64_t token)>;
  ExpertGroup(const GroupShape& of, const Choose& choose) : shape(of) {
    table.assign(static_cast<std::size_t>(shape.members * shape.experts), 0);
    for (std::int64_t m = 0; m < shape.members; ++m) {
      choices.emplace_back();
      for (std::int64_t t = 0; t < shape.tokens[m]; ++t)
        for (const std::int32_t e : choose(m, t)) {
          choices[m].push_back(e);
          ++table[m * shape.experts + e];
        }
    }
    for (std::int64_t m = 0; m < shape.members; ++m)
      maps.push_back(make_row_map(choice_matrix(m), loads(), static_cast<int>(m)));
  }
  Matrix<const std::int32_t> choice_matrix(std::int64_t m) const {
    return {choices[m].data(), shape.tokens[m], shape.choices};
  }
  Matrix<const std::int64_t> loads() const { return {table.data(), shape.members, shape.experts}; }
  std::int64_t local() const { return shape.experts / shape.members; }

  GroupShape shape;
  std::vector<std::vector<std::int32_t>> choices;
  std::vector<std::int64_t> table;
  std::vector<RowMap> maps;
};

inline std::vector<std::int32_t> distinct_experts(const CounterRandom& random, std::int64_t at,
                                                  const GroupShape& shape) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(shape.experts));
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t j = 0; j < shape.choices; ++j)
    std::swap(all[j], all[j + random.below(at * 64 + j, static_cast<std::uint64_t>(shape.experts - j))]);
  all.resize(static_cast<std::size_t>(shape.choices));
  return all;
}

/// A row on its way: who sent it, for which token and which expert.
using Row = std::tuple<std::int64_t, std::int64_t, std::int32_t>;  // member, token, expert

/// Carries the rows as an all-to-all would; returns what every member computes, in expert order. `maps`: the group's, or
/// those of a slice.
inline std::vector<std::vector<Row>> dispatch(const ExpertGroup& group, const std::vector<RowMap>& maps) {
  const std::int64_t members = group.shape.members;
  std::vector<std::vector<Row>> computed(members);
  for (std::int64_t to = 0; to < members; ++to) {
    const RowMap& receiver = maps[to];
    std::vector<Row> received;
    for (std::int64_t from = 0; from < members; ++from) {
      const RowMap& sender = maps[from];
      EXPECT_EQ(sender.sent_rows[to], receiver.received_rows[from]);
      const auto first = std::accumulate(sender.sent_rows.begin(), sender.sent_rows.begin() + to, std::int64_t{0});
      for (std::int64_t row = first; row < first + sender.sent_rows[to]; ++row)
        received.emplace_back(from, sender.token_of_sent[row], group.choices[from][sender.slot_of_sent[row]]);
    }
    EXPECT_EQ(std::ssize(received), receiver.rows());
    EXPECT_EQ(std::ssize(receiver.expert_order), receiver.rows());
    computed[to].assign(received.size(), Row{-1, -1, -1});
    for (std::size_t i = 0; i < received.size(); ++i) computed[to][receiver.expert_order[i]] = received[i];
  }
  return computed;
}

}  // namespace spillway::device
