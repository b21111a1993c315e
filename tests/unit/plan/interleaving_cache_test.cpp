// Remembered orders: a function of the discretized window alone, and close to the best of the real one.
#include "plan/schedule/interleaving_cache.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "fused_windows.hpp"

namespace spillway {
namespace {

/// Every duration times up to 1 + `noise`, or divided by it.
DualBatch disturbed(DualBatch w, std::uint64_t seed, double noise) {
  Draws draw(seed);
  for (auto& chain : w.chains)
    for (Segment& s : chain) s.seconds = s.seconds * draw.log_between(1 / (1 + noise), 1 + noise);
  return w;
}

TEST(InterleavingCache, DurationsMoveByAtMostHalfAStep) {
  DualBatch w;
  for (double s = 1e-9; s < 1e6; s *= 1.0137) w.of(ChainId::forward).push_back({Lane::compute, Seconds(s)});
  const DualBatch d = discretized(w);
  for (std::size_t n = 0; n < w.chains[0].size(); ++n)
    EXPECT_LE(std::abs(std::log2(d.chains[0][n].seconds / w.chains[0][n].seconds)), 1.0 / 32 + 1e-12);
  w.of(ChainId::forward) = {{Lane::compute, Seconds(0)}, {Lane::compute, Seconds(1)}, {Lane::compute, Seconds(3)}};
  EXPECT_EQ(discretized(w).chains[0][0].seconds, Seconds(0));
  EXPECT_EQ(discretized(w).chains[0][1].seconds, Seconds(1));
  EXPECT_NEAR(discretized(w).chains[0][2].seconds.value, std::exp2(25.0 / 16), 1e-12);
  EXPECT_EQ(discretized(discretized(w)).chains[0][2].seconds, discretized(w).chains[0][2].seconds);
}

TEST(InterleavingCache, CountsLookupsAndHits) {
  InterleavingCache cache;
  const DualBatch w = discretized(moe_window(1, 1, 1.05));
  cache(w);
  EXPECT_EQ(cache.counts().hits, 0);
  cache(disturbed(w, 1, 0.02));
  EXPECT_EQ(cache.counts().hits, 1);
  cache(disturbed(w, 1, 0.5));
  EXPECT_EQ(cache.counts().hits, 1);
  DualBatch other = w;
  other.interference = 1.06;
  cache(other);
  other = w;
  other.of(ChainId::forward)[0].seconds = Seconds(0);
  cache(other);
  other = w;
  other.of(ChainId::backward).push_back({Lane::compute, Seconds(0)});
  cache(other);
  other = w;
  other.of(ChainId::offload).push_back({Lane::copy_out, Seconds(1), 1});
  cache(other);
  other.of(ChainId::offload).back().needs = 3;
  cache(other);
  EXPECT_EQ(cache.counts().hits, 1);
  EXPECT_EQ(cache.counts().lookups, 8);
}

TEST(InterleavingCache, WhatItAnswersDoesNotDependOnWhatCameFirst) {
  InterleavingCache forwards, backwards, small({{}, 3});
  std::vector<DualBatch> windows;
  for (std::uint64_t n = 0; n < 60; ++n)
    windows.push_back(disturbed(discretized(moe_window(n % 10, 1, 1.05)), n, n % 3 == 0 ? 0.3 : 0.02));
  std::vector<IssueOrder> first;
  for (const DualBatch& w : windows) {
    const FusedPlan& plan = forwards(w);
    first.push_back(expand(plan.compaction, plan.interleaving.order));
  }
  for (std::size_t n = windows.size(); n-- > 0;) {
    EXPECT_EQ(expand(backwards(windows[n]).compaction, backwards(windows[n]).interleaving.order), first[n]);
    EXPECT_EQ(expand(small(windows[n]).compaction, small(windows[n]).interleaving.order), first[n]);
  }
  EXPECT_EQ(forwards.counts().hits, 30);  // of 40 near the ten windows
}

TEST(InterleavingCache, DiscretizingLosesLessThanAStep) {
  double mean = 0, worst = 0;
  Interleaver search;
  InterleavingCache cache({{0.0}, 1 << 14});  // segments are the operators: the loss of discretizing alone
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const DualBatch w = compacted_window(seed, seed % 2 == 0 ? 1 : 1.2);
    const double loss = makespan(w, cache(w).interleaving.order) / search(w).makespan - 1;
    EXPECT_GT(loss, -1e-9);
    EXPECT_LT(loss, std::exp2(1.0 / 16) - 1);
    mean += loss / 200;
    worst = std::max(worst, loss);
  }
  EXPECT_LT(mean, 0.005);
  RecordProperty("loss", fmt::format("mean {:.5f}, worst {:.4f}", mean, worst));
}

TEST(InterleavingCache, WhatIsNoWindowIsRefusedEvenWhereItWouldBeKnown) {
  InterleavingCache cache;
  DualBatch w;
  w.of(ChainId::forward) = {{Lane::compute, Seconds(1)}};
  cache(w);
  w.of(ChainId::forward)[0].seconds = Seconds(-1);
  EXPECT_THROW(cache(w), InternalError);
}

}  // namespace
}  // namespace spillway
