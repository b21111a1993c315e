// Fused dual-batch execution: what an order of issue costs, and the best one against every other one.
#include "plan/schedule/dual_batch.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "fused_windows.hpp"
#include "plan/schedule/interleave.hpp"

namespace spillway {
namespace {

constexpr auto F = ChainId::forward, B = ChainId::backward, O = ChainId::offload, R = ChainId::reload;

/// The rule of the issue in its plainest form, advanced one segment at a time.
struct ByHand {
  std::array<std::size_t, 4> issued{};
  std::array<double, 4> lanes{}, chains{};
  std::array<double, 5> forward_ends{};
  double beside = 0;
  bool copies_early = true;  ///< so far

  bool can(const DualBatch& w, std::size_t c) const {
    return issued[c] < w.chains[c].size() &&
           (c != 2 || static_cast<std::size_t>(w.chains[2][issued[2]].needs) <= issued[0]);
  }
  void issue(const DualBatch& w, std::size_t c) {
    if (c < 2) copies_early = copies_early && !can(w, 2) && !can(w, 3);
    const Segment& s = w.chains[c][issued[c]++];
    double& lane = lanes[static_cast<std::size_t>(s.lane)];
    double start = std::max(lane, chains[c]);
    if (c == 2) start = std::max(start, forward_ends[static_cast<std::size_t>(s.needs)]);
    lane = start + s.seconds.value;
    if (s.lane == Lane::compute) {
      const double met = std::min(std::max(0.0, beside - start), s.seconds.value * w.interference);
      lane += met - met / w.interference;
      beside = std::max(beside, lane);
    } else {
      beside += s.seconds.value;
    }
    chains[c] = lane;
    if (c == 0) forward_ends[issued[0]] = lane;
  }
  double makespan(const DualBatch& w) const {
    return std::max({lanes[0] + (beside - lanes[0]) * (1 - 1 / w.interference), lanes[1], lanes[2], lanes[3]});
  }
};

struct Least {
  double anywhere = std::numeric_limits<double>::infinity(), early = anywhere;
  std::int64_t orders = 0;
};

/// Every order of issue that begins like `begun`.
void enumerate(const DualBatch& w, const ByHand& begun, Least& least) {
  bool complete = true;
  for (std::size_t c = 0; c < 4; ++c) {
    complete = complete && begun.issued[c] == w.chains[c].size();
    if (!begun.can(w, c)) continue;
    ByHand next = begun;
    next.issue(w, c);
    enumerate(w, next, least);
  }
  if (!complete) return;
  ++least.orders;
  least.anywhere = std::min(least.anywhere, begun.makespan(w));
  if (begun.copies_early) least.early = std::min(least.early, begun.makespan(w));
}

TEST(DualBatch, TimesOfAnOrderWorkedOutByHand) {
  DualBatch w;
  w.of(F) = {{Lane::compute, Seconds(4)}, {Lane::network, Seconds(3)}, {Lane::compute, Seconds(2)}};
  w.of(B) = {{Lane::network, Seconds(2)}, {Lane::compute, Seconds(6)}};
  w.of(O) = {{Lane::copy_out, Seconds(5), 1}};
  w.of(R) = {{Lane::copy_in, Seconds(1)}};
  const std::vector<ChainId> order{R, B, F, O, B, F, F};
  const IssuedWork work = issue(w, order);
  const std::vector<std::pair<double, double>> expected{{0, 1}, {0, 2}, {0, 4}, {4, 9}, {4, 10}, {4, 7}, {10, 12}};
  for (std::size_t n = 0; n < order.size(); ++n) {
    EXPECT_EQ(work.items[n].start.value, expected[n].first) << n;
    EXPECT_EQ(work.items[n].end.value, expected[n].second) << n;
  }
  EXPECT_EQ(work.makespan, Seconds(12));
  EXPECT_EQ(to_text(plain_order(w)), "R F O F F B B");
  EXPECT_EQ(makespan(w, plain_order(w)), Seconds(15));  // F 4, 7, 9; B 9 (its message ends at 9 behind F's), 15
  w.interference = 2;
  // beside: R 1, B 2. F: 3 s slow, ends 5.5. O 5: B from 5.5, slow for 5 s, ends 14. F's message adds 3, F 2 -> 17.5
  EXPECT_EQ(makespan(w, order), Seconds(17.5));
}

TEST(Interleave, EqualsTheBestOfAllOrders) {
  Interleaver search;
  std::int64_t orders = 0, improved = 0;
  double gap = 0, worst = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const DualBatch w = small_window(seed);
    Least least;
    enumerate(w, {}, least);
    const Interleaving early = search(w), anywhere = search(w, Copies::anywhere);
    ASSERT_NEAR(early.makespan.value, least.early, 1e-11 * least.early) << "seed " << seed;
    ASSERT_NEAR(anywhere.makespan.value, least.anywhere, 1e-11 * least.anywhere) << "seed " << seed;
    if (w.interference == 1) {
      ASSERT_NEAR(least.early, least.anywhere, 1e-11 * least.early) << "seed " << seed;
    }
    orders += least.orders;
    improved += early.makespan < early.plain_makespan;
    if (least.early > 0) {
      gap += least.early / least.anywhere - 1;
      worst = std::max(worst, least.early / least.anywhere - 1);
    }
  }
  EXPECT_GT(orders, 500'000);
  EXPECT_GT(improved, 300);
  EXPECT_LT(gap / 1000, 0.01);
  RecordProperty("orders", std::to_string(orders));
  RecordProperty("early_over_anywhere", fmt::format("mean {:.5f}, worst {:.4f}", gap / 1000, worst));
}

/// What must hold whatever the durations are.
void check_properties(const DualBatch& w, const Interleaving& found) {
  const IssuedWork work = issue(w, found.order);  // throws where a chain's order or a need is broken
  EXPECT_EQ(work.makespan, found.makespan);
  EXPECT_EQ(makespan(w, found.order), found.makespan);
  EXPECT_EQ(makespan(w, plain_order(w)), found.plain_makespan);
  EXPECT_LE(found.makespan, found.plain_makespan);
  std::array<Seconds, 4> lanes{}, chains{}, alone{};
  std::array<int, 4> next{};
  std::vector<Seconds> forward{Seconds(0)};
  for (const auto& [chain, index, start, end] : work.items) {
    const auto c = static_cast<std::size_t>(chain);
    const Segment& s = w.chains[c][static_cast<std::size_t>(index)];
    const auto lane = static_cast<std::size_t>(s.lane);
    EXPECT_EQ(index, next[c]++);
    EXPECT_GE(start, lanes[lane]);
    EXPECT_GE(start, chains[c]);
    EXPECT_GE(end - start, s.seconds * (1 - 1e-12));
    EXPECT_LE(end - start, s.seconds * (s.lane == Lane::compute ? w.interference : 1) * (1 + 1e-12));
    if (chain == O) {
      ASSERT_LT(static_cast<std::size_t>(s.needs), forward.size());
      EXPECT_GE(start, forward[static_cast<std::size_t>(s.needs)]);
    }
    if (chain == F) forward.push_back(end);
    lanes[lane] = chains[c] = end;
    alone[lane] += s.seconds;
  }
  for (std::size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(next[n], std::ssize(w.chains[n]));
    EXPECT_GE(found.makespan, lanes[n]);
    EXPECT_GE(found.makespan, alone[n] * (1 - 1e-12));
  }
}

TEST(Interleave, KeepsChainsLanesAndNeedsAndNeverLosesToThePlainOrder) {
  Interleaver search;
  double gain = 0;
  std::size_t largest = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const DualBatch w = compacted_window(seed, seed % 2 == 0 ? 1 : 1.2);
    const Interleaving found = search(w);
    largest = std::max(largest, search.partial_orders());
    ASSERT_NO_FATAL_FAILURE(check_properties(w, found)) << "seed " << seed;
    ASSERT_NO_FATAL_FAILURE(check_properties(w, search(w, Copies::anywhere))) << "seed " << seed;
    gain += found.plain_makespan / found.makespan / 300;
  }
  EXPECT_GT(gain, 1.2);
  EXPECT_LT(largest, 500u);  // of 3,431 ways to begin
  RecordProperty("plain_over_best", fmt::format("{:.3f}", gain));
  RecordProperty("partial_orders", std::to_string(largest));
}

TEST(Interleave, TwoChainsOfEqualBlocksHideTheirMessages) {
  DualBatch w;
  for (const ChainId c : {F, B})
    for (int n = 0; n < 3; ++n) {
      w.of(c).push_back({Lane::compute, Seconds(1)});
      w.of(c).push_back({Lane::network, Seconds(1)});
    }
  const Interleaving found = interleave(w);
  EXPECT_EQ(found.makespan, Seconds(7));  // 6 of computation, and the last message
  EXPECT_EQ(found.plain_makespan, Seconds(11));
}

TEST(Interleave, WhereNothingIsGainedThePlainOrderStays) {
  DualBatch w;
  w.of(F) = {{Lane::compute, Seconds(1)}, {Lane::compute, Seconds(2)}};
  w.of(B) = {{Lane::network, Seconds(4)}, {Lane::network, Seconds(1)}};
  w.of(O) = {{Lane::copy_out, Seconds(1), 1}, {Lane::copy_out, Seconds(1), 2}};
  w.of(R) = {{Lane::copy_in, Seconds(2)}};
  const Interleaving found = interleave(w);
  EXPECT_EQ(to_text(found.order), "R F O F O B B");
  EXPECT_EQ(found.makespan, Seconds(5));
  EXPECT_EQ(interleave({}).makespan, Seconds(0));
  EXPECT_TRUE(interleave({}).order.empty());
}

TEST(Interleave, TheSameWindowGivesTheSameOrderWhateverCameBefore) {
  Interleaver used;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const DualBatch w = compacted_window(seed, 1.1);
    EXPECT_EQ(used(w).order, interleave(w).order) << "seed " << seed;
  }
}

TEST(DualBatch, WhatIsNoWindowOrNoOrderOfItIsRefused) {
  DualBatch w;
  w.of(F) = {{Lane::compute, Seconds(1)}};
  w.of(O) = {{Lane::copy_out, Seconds(1), 1}};
  EXPECT_THROW(issue(w, std::vector{O, F}), InternalError);
  EXPECT_THROW(issue(w, std::vector{F}), InternalError);
  EXPECT_THROW(issue(w, std::vector{F, F}), InternalError);
  EXPECT_NO_THROW(issue(w, std::vector{F, O}));
  w.of(O)[0].needs = 2;
  EXPECT_THROW(interleave(w), InternalError);
  w.of(O).clear();
  w.interference = 0.9;
  EXPECT_THROW(interleave(w), InternalError);
  w.interference = 1;
  w.of(F)[0].seconds = Seconds(-1);
  EXPECT_THROW(interleave(w), InternalError);
  w.of(F) = {{Lane::copy_in, Seconds(1)}};
  EXPECT_THROW(interleave(w), InternalError);
}

}  // namespace
}  // namespace spillway
