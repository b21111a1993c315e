// Joining operators into segments: nothing is lost or reordered, and the best order loses next to nothing.
#include "plan/schedule/compaction.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fused_windows.hpp"
#include "plan/schedule/interleave.hpp"

namespace spillway {
namespace {

TEST(Compaction, SegmentsHoldEveryOperatorOnceInOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const DualBatch w = moe_window(seed, 1 + static_cast<int>(seed % 3), 1.1);
    const Compaction c = compact(w);
    EXPECT_EQ(c.batch.interference, w.interference);
    for (std::size_t chain = 0; chain < chain_count; ++chain) {
      const auto& segments = c.batch.chains[chain];
      ASSERT_EQ(segments.size(), c.operators[chain].size());
      int at = 0;
      for (std::size_t n = 0; n < segments.size(); ++n) {
        const auto [begin, end] = c.operators[chain][n];
        EXPECT_EQ(begin, at);
        ASSERT_LT(begin, end);
        at = end;
        Seconds sum;
        for (int o = begin; o < end; ++o) {
          const Segment& s = w.chains[chain][static_cast<std::size_t>(o)];
          EXPECT_EQ(s.lane, segments[n].lane);
          sum += s.seconds;
        }
        EXPECT_EQ(sum, segments[n].seconds);
        EXPECT_TRUE(segments[n].lane == Lane::compute || end == begin + 1) << "messages and copies stay alone";
      }
      EXPECT_EQ(at, std::ssize(w.chains[chain]));
    }
    // An offload waits for exactly what it needs.
    const auto& forward = c.operators[0];
    for (std::size_t o = 0; o < w.of(ChainId::offload).size(); ++o) {
      const int operators = w.of(ChainId::offload)[o].needs, segments = c.batch.of(ChainId::offload)[o].needs;
      EXPECT_EQ(segments == 0 ? 0 : forward[static_cast<std::size_t>(segments) - 1].end, operators);
    }
  }
}

TEST(Compaction, LimitsWhatIsJoined) {
  DualBatch w;
  for (const double s : {1.0, 1.0, 3.0, 1.0, 1.0, 1.0, 2.0})
    w.of(ChainId::forward).push_back({Lane::compute, Seconds(s)});
  const auto ranges = [&](double longest) { return compact(w, {longest}).operators[0]; };
  EXPECT_EQ(ranges(0.2), (std::vector<OperatorRange>{{0, 2}, {2, 3}, {3, 5}, {5, 6}, {6, 7}}));
  EXPECT_EQ(ranges(1), (std::vector<OperatorRange>{{0, 7}}));
  EXPECT_EQ(ranges(0).size(), 7u);
  w.of(ChainId::offload) = {{Lane::copy_out, Seconds(1), 1}, {Lane::copy_out, Seconds(1), 4}};
  EXPECT_EQ(ranges(1), (std::vector<OperatorRange>{{0, 1}, {1, 4}, {4, 7}})) << "segments end where offloads may start";
}

/// Losses against the best order of the operators themselves, each of `windows` windows.
struct Losses {
  std::vector<double> sorted;
  double segments = 0;  ///< mean, per block and direction
  double mean() const {
    return std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(sorted.size());
  }
};

Losses losses_of(int windows, int blocks, double interference, const CompactionOptions& options) {
  Losses losses;
  Interleaver search;
  for (int seed = 0; seed < windows; ++seed) {
    const DualBatch w = moe_window(static_cast<std::uint64_t>(seed), blocks, interference);
    const Compaction c = compact(w, options);
    const Seconds compacted = makespan(w, expand(c, search(c.batch).order));
    losses.sorted.push_back(compacted / search(w).makespan - 1);
    losses.segments +=
        static_cast<double>(c.batch.chains[0].size() + c.batch.chains[1].size()) / (2.0 * blocks * windows);
  }
  std::sort(losses.sorted.begin(), losses.sorted.end());
  return losses;
}

TEST(Compaction, LosesNextToNothing) {
  for (const double interference : {1.0, 1.1})
    for (const int blocks : {1, 2}) {
      const Losses l = losses_of(blocks == 1 ? 500 : 300, blocks, interference, {});
      const std::string text = fmt::format("mean {:.6f}, worst {:.4f}, segments per block and direction {:.1f}",
                                           l.mean(), l.sorted.back(), l.segments);
      RecordProperty(fmt::format("loss_{}_blocks_{}", blocks, interference), text);
      EXPECT_LT(l.mean(), 0.0002) << text;
      EXPECT_LT(l.sorted.back(), 0.01) << text;
      // With interference, an offload issued behind a joined segment may be charged to other computation.
      EXPECT_GT(l.sorted.front(), interference == 1 ? -1e-9 : -0.01) << text;
    }
}

TEST(Compaction, JoiningAllBetweenMessagesLosesOverlap) {
  const Losses all = losses_of(400, 1, 1, {1.0});
  EXPECT_GT(all.sorted.back(), 0.05);
  EXPECT_NEAR(all.segments, 5, 0.5);
}

}  // namespace
}  // namespace spillway
