// The order of gradient reductions: every element once, summed before its buffer is used again, never before it is final.
#include "plan/reduction_order.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/random.hpp"

namespace spillway {
namespace {

using Kind = ReductionStep::Kind;

/// Three groups over `blocks` blocks: four ranks, one rank, two ranks.
RankElements elements_of(int blocks, bool overlapped) {
  RankElements all;
  all[0] = {4, 1, overlapped, {}};
  all[1] = {1, 1, overlapped, {}};
  all[2] = {2, 4, overlapped, {}};
  for (int b = 0; b < blocks; ++b) {
    all[0].add(b, 1000 + 3 * b);
    all[1].add(b, 500);
    if (b % 2 == 1) all[2].add(b, 77);
  }
  return all;
}

/// Follows the steps and fails where one is out of place.
class Follower {
 public:
  explicit Follower(const RankElements& elements) : elements_(elements) {}
  void final(int block) { final_.insert({block, true}); }
  void finish() { finished_ = true; }
  void take(const std::vector<ReductionStep>& steps) {
    for (const ReductionStep& s : steps) {
      const auto group = static_cast<std::size_t>(s.group);
      auto& flying = flying_[group];
      if (s.kind == Kind::sum) {
        ASSERT_EQ(flying, std::make_tuple(s.bucket.block, s.at, s.elements)) << "what was exchanged is summed";
        flying = {-1, 0, 0};
        continue;
      }
      ASSERT_EQ(std::get<0>(flying), -1) << "the buffer is in use";
      ASSERT_TRUE(finished_ || final_.contains(s.bucket.block));
      ASSERT_GT(s.elements, 0);
      ASSERT_LE(s.elements, reduction_piece(elements_[group]));
      flying = {s.bucket.block, s.at, s.elements};
      auto& done = done_[{static_cast<int>(group), s.bucket.block}];
      ASSERT_EQ(s.at, done) << "pieces follow each other";
      done += s.elements;
    }
  }
  void expect_all_done() const {
    std::size_t buckets = 0;
    for (std::size_t g = 0; g < elements_.size(); ++g) {
      EXPECT_EQ(std::get<0>(flying_[g]), -1) << "exchanged and never summed";
      if (elements_[g].shards == 1) continue;
      for (const Bucket& b : elements_[g].buckets) {
        EXPECT_EQ(done_.at({static_cast<int>(g), b.block}), b.shard);
        ++buckets;
      }
    }
    EXPECT_EQ(done_.size(), buckets);
  }

 private:
  RankElements elements_;
  std::map<int, bool> final_;
  bool finished_ = false;
  std::array<std::tuple<int, std::int64_t, std::int64_t>, parameter_group_count> flying_{std::tuple{-1, 0, 0},
                                                                                         std::tuple{-1, 0, 0},
                                                                                         std::tuple{-1, 0, 0}};
  std::map<std::pair<int, int>, std::int64_t> done_;
};

/// Seconds in which the first group exchanges so many elements of a shard.
Seconds seconds_for(std::int64_t elements) {
  return exchange_seconds(elements_of(1, true)[0], MachineProfile{}, elements) * (1 + 1e-9);
}

TEST(ReductionOrder, EveryElementIsExchangedAndSummedOnceWhateverThePlaces) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed);
    const int blocks = 1 + static_cast<int>(random.below(0, 5));
    const RankElements elements = elements_of(blocks, true);
    ReductionOrder order(elements, {});
    for (int iteration = 0; iteration < 2; ++iteration) {
      Follower follower(elements);
      order.begin_iteration();
      std::uint64_t n = 1;
      for (int b = blocks - 1; b >= 0; --b) {
        if (random.below(n++, 4) > 0) {  // or else it is left to finish()
          order.gradients_are_final(b);
          follower.final(b);
        }
        for (std::uint64_t place = random.below(n++, 4); place > 0; --place)
          follower.take(order.carry_on(seconds_for(static_cast<std::int64_t>(random.below(n++, 400)))));
      }
      follower.finish();
      follower.take(order.finish());
      follower.expect_all_done();
      if (HasFatalFailure()) return;
    }
  }
}

TEST(ReductionOrder, WithoutOverlapNothingIsReducedBeforeTheEndAndGroupsFollowEachOther) {
  const RankElements elements = elements_of(3, false);
  ReductionOrder order(elements, {});
  order.begin_iteration();
  for (int b = 2; b >= 0; --b) {
    order.gradients_are_final(b);
    EXPECT_TRUE(order.carry_on(Seconds(1e6)).empty());
  }
  Follower follower(elements);
  follower.finish();
  const auto steps = order.finish();
  follower.take(steps);
  follower.expect_all_done();
  for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_LE(steps[i - 1].group, steps[i].group);
}

TEST(ReductionOrder, APlaceTakesWhatItsSecondsHideOverAllGroups) {
  const RankElements elements = elements_of(2, true);
  const MachineProfile machine;
  ReductionOrder order(elements, machine);
  order.begin_iteration();
  order.gradients_are_final(1);
  EXPECT_TRUE(order.carry_on(Seconds(0)).empty());
  const auto some = order.carry_on(seconds_for(100));
  ASSERT_EQ(some.size(), 1u);  // the second group would need a latency more
  EXPECT_EQ(some[0].elements, 100);
  const auto rest = order.carry_on(Seconds(1));
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(rest[0].kind, Kind::sum);
  EXPECT_EQ(rest[1].at, 100);
  EXPECT_EQ(rest[1].elements, 151);  // of ceil(1003 / 4)
  EXPECT_EQ(rest[2].group, ParameterGroup::plane);
  const auto sums = order.carry_on(Seconds(1));
  ASSERT_EQ(sums.size(), 2u);  // block 0 is not final
  EXPECT_EQ(sums[0].kind, Kind::sum);
  EXPECT_EQ(sums[1].kind, Kind::sum);
}

TEST(ElementsExchanged, TakeAtMostTheirSecondsAndOneMoreWouldNot) {
  const RankElements elements = elements_of(1, true);
  MachineProfile machine;
  for (const int ranks_per_node : {1, 2, 8, 16})
    for (const double microseconds : {1.0, 6.0, 37.5, 1e4}) {
      machine.ranks_per_node = ranks_per_node;
      const Seconds limit(microseconds * 1e-6);
      const std::int64_t n = elements_exchanged(elements[0], machine, limit);
      if (n > 0) {
        EXPECT_LE(exchange_seconds(elements[0], machine, n), limit * (1 + 1e-9));
      }
      EXPECT_GT(exchange_seconds(elements[0], machine, n + 1), limit * (1 - 1e-9));
    }
}

}  // namespace
}  // namespace spillway
