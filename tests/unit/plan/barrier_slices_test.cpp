// The published scheme with barriers: exact, and never ahead of the order without them.
#include "plan/schedule/barrier_slices.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "fused_windows.hpp"
#include "plan/schedule/interleave.hpp"

namespace spillway {
namespace {

constexpr auto F = ChainId::forward, B = ChainId::backward;

/// Every sequence of slices from `issued` on.
double least_by_enumeration(const DualBatch& w, std::array<std::size_t, 4> issued) {
  double least = std::numeric_limits<double>::infinity();
  bool complete = true;
  for (std::size_t c = 0; c < 4; ++c) complete = complete && issued[c] == w.chains[c].size();
  if (complete) return 0;
  for (unsigned chains = 1; chains < 16; ++chains) {
    auto next = issued;
    std::array<double, 4> lanes{};
    bool possible = true;
    for (std::size_t c = 0; c < 4; ++c) {
      if ((chains >> c & 1) == 0) continue;
      possible = possible && issued[c] < w.chains[c].size();
      if (!possible) break;
      const Segment& s = w.chains[c][next[c]++];
      possible = c != 2 || static_cast<std::size_t>(s.needs) <= issued[0];
      if (!possible) break;
      lanes[static_cast<std::size_t>(s.lane)] += s.seconds.value;
    }
    if (!possible) continue;
    const auto busy = std::count_if(lanes.begin(), lanes.end(), [](double s) { return s > 0; });
    const double slice = *std::max_element(lanes.begin(), lanes.end()) * (busy > 1 ? w.interference : 1);
    least = std::min(least, slice + least_by_enumeration(w, next));
  }
  return least;
}

TEST(BarrierSlices, EqualTheBestOfAllSlicings) {
  int windows = 0;
  for (std::uint64_t seed = 0; windows < 300; ++seed) {
    const DualBatch w = small_window(seed);
    if (w.chains[0].size() + w.chains[1].size() + w.chains[2].size() + w.chains[3].size() > 7) continue;
    ++windows;
    const double least = least_by_enumeration(w, {});
    ASSERT_NEAR(interleave_with_barriers(w).makespan.value, least, 1e-12 * least) << "seed " << seed;
  }
}

TEST(BarrierSlices, OrderAndBarriersAddUpToTheMakespan) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const DualBatch w = compacted_window(seed, seed % 2 == 0 ? 1 : 1.2);
    const BarrierInterleaving found = interleave_with_barriers(w);
    std::array<std::size_t, 4> issued{};
    std::size_t at = 0;
    Seconds sum;
    for (const std::size_t end : found.slice_ends) {
      const std::size_t forward = issued[0];
      std::vector<Segment> slice;
      for (; at < end; ++at) {
        const auto c = static_cast<std::size_t>(found.order[at]);
        slice.push_back(w.chains[c][issued[c]++]);
        if (slice.back().lane == Lane::copy_out) {
          ASSERT_LE(static_cast<std::size_t>(slice.back().needs), forward);
        }
      }
      sum += slice_seconds(w, slice);
    }
    EXPECT_EQ(at, found.order.size());
    EXPECT_EQ(issue(w, found.order).items.size(), found.order.size());
    EXPECT_NEAR(sum.value, found.makespan.value, 1e-12 * sum.value);
  }
}

TEST(BarrierSlices, WithoutInterferenceNoBarriersAreNeverSlower) {
  double gain = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const DualBatch w = compacted_window(seed, 1);
    const BarrierInterleaving with = interleave_with_barriers(w);
    EXPECT_LE(makespan(w, with.order), with.makespan * (1 + 1e-12));
    const Seconds without = interleave(w).makespan;
    EXPECT_LE(without, with.makespan * (1 + 1e-12));
    gain += with.makespan / without / 200;
  }
  EXPECT_GT(gain, 1.005);
  RecordProperty("barriers_over_best", std::to_string(gain));
}

TEST(BarrierSlices, ASliceOnOneLaneIsTheSumAndOneOnTwoIsSlowed) {
  DualBatch w;
  w.interference = 1.5;
  w.of(F) = {{Lane::compute, Seconds(2)}};
  w.of(B) = {{Lane::compute, Seconds(3)}};
  EXPECT_EQ(interleave_with_barriers(w).makespan, Seconds(5));
  w.of(B) = {{Lane::network, Seconds(2)}};
  EXPECT_EQ(interleave_with_barriers(w).makespan, Seconds(3));
  w.of(B) = {{Lane::network, Seconds(0.5)}};
  EXPECT_EQ(interleave_with_barriers(w).makespan, Seconds(2.5));  // one after the other
  EXPECT_EQ(interleave_with_barriers({}).makespan, Seconds(0));
}

}  // namespace
}  // namespace spillway
