// Interleaved 1F1B: Megatron-LM's order where its groups divide, and no deadlock anywhere.
#include "plan/schedule/interleaved.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace spillway {
namespace {

using Kind = Task::Kind;

/// Every shape of 1 to 8 stages, 1 to 4 chunks, 1 to 17 micro-batches: 544 of them.
void for_every_shape(const std::function<void(const ScheduleShape&)>& check) {
  int shapes = 0;
  for (int p = 1; p <= 8; ++p)
    for (int v = 1; v <= 4; ++v)
      for (int m = 1; m <= 17; ++m) {
        SCOPED_TRACE(testing::Message() << "p " << p << ", v " << v << ", m " << m);
        check({p, m, v});
        ++shapes;
      }
  EXPECT_EQ(shapes, 544);
}

TEST(Interleaved, NoShapeDeadlocks) {
  for_every_shape(
      [](const ScheduleShape& s) { EXPECT_EQ(find_deadlock(interleaved_one_forward_one_backward(s)), ""); });
}

TEST(Interleaved, EveryPairRunsOnceEachWayAndForwardFirst) {
  for_every_shape([](const ScheduleShape& s) {
    for (int stage = 0; stage < s.stages; ++stage) {
      const std::vector<Task> order = interleaved_order(s, stage);
      ASSERT_EQ(std::ssize(order), 2 * s.micro_batches * s.chunks);
      for (int c = 0; c < s.chunks; ++c)
        for (int i = 0; i < s.micro_batches; ++i) {
          const auto forward = std::find(order.begin(), order.end(), Task{Kind::forward, i, c});
          ASSERT_NE(forward, order.end());
          ASSERT_NE(std::find(forward, order.end(), Task{Kind::backward, i, c}), order.end());
        }
    }
  });
}

TEST(Interleaved, WithOneChunkItIsPlain1F1B) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 17; ++m)
      ASSERT_EQ(interleaved_one_forward_one_backward({p, m, 1}), one_forward_one_backward({p, m})) << p << ", " << m;
}

TEST(Interleaved, ListingForFourStagesTwoChunksAndEightMicroBatches) {
  EXPECT_EQ(to_text(interleaved_order({4, 8, 2}, 0)),
            "F0.0 F1.0 F2.0 F3.0 F0.1 F1.1 F2.1 F3.1 F4.0 F5.0 F6.0 B0.1 F7.0 B1.1 F4.1 B2.1 F5.1 B3.1 F6.1 B0.0 F7.1 "
            "B1.0 B2.0 B3.0 B4.1 B5.1 B6.1 B7.1 B4.0 B5.0 B6.0 B7.0");
  EXPECT_EQ(to_text(interleaved_order({4, 8, 2}, 3)).substr(0, 44), "F0.0 F1.0 F2.0 F3.0 F0.1 B0.1 F1.1 B1.1 F2.1");
}

/// The order of Megatron-LM: groups of `stages` micro-batches and a remainder.
Schedule with_groups_of_stages(const ScheduleShape& s) {
  const int p = s.stages, m = s.micro_batches, v = s.chunks;
  Schedule schedule;
  std::vector<Task> forwards;
  for (int low = 0; low < m; low += p)
    for (int c = 0; c < v; ++c)
      for (int i = low; i < std::min(low + p, m); ++i) forwards.push_back({Kind::forward, i, c});
  for (int r = 0; r < p; ++r) {
    const int w = std::min(v == 1 ? p - r - 1 : 2 * (p - r - 1) + (v - 1) * p, m * v);
    std::vector<Task> order;
    for (int k = 0; k < m * v + w; ++k) {
      if (k < m * v) order.push_back(forwards[k]);
      if (k >= w) order.push_back({Kind::backward, forwards[k - w].micro_batch, v - 1 - forwards[k - w].chunk});
    }
    schedule.push_back(order);
  }
  return schedule;
}

TEST(Interleaved, EqualsMegatronsOrderWhereTheStagesDivideTheMicroBatches) {
  for_every_shape([](const ScheduleShape& s) {
    if (s.micro_batches % s.stages == 0) EXPECT_EQ(interleaved_one_forward_one_backward(s), with_groups_of_stages(s));
  });
}

TEST(Interleaved, EvenGroupsAreWhatKeepsShortRemaindersFromDeadlocking) {
  EXPECT_NE(find_deadlock(with_groups_of_stages({4, 5, 3})), "");
  int stuck = 0;
  for_every_shape([&](const ScheduleShape& s) { stuck += !find_deadlock(with_groups_of_stages(s)).empty(); });
  EXPECT_EQ(stuck, 74);
}

TEST(MicroBatchGroups, AreAsEqualAsPossibleAndAtLeastAsLongAsThePipeline) {
  EXPECT_EQ(micro_batch_groups({4, 8, 2}), (std::vector<int>{4, 4}));
  EXPECT_EQ(micro_batch_groups({4, 11, 2}), (std::vector<int>{6, 5}));
  EXPECT_EQ(micro_batch_groups({4, 3, 2}), (std::vector<int>{3}));
  for_every_shape([](const ScheduleShape& s) {
    const auto groups = micro_batch_groups(s);
    const auto [least, most] = std::minmax_element(groups.begin(), groups.end());
    EXPECT_LE(*most - *least, 1);
    EXPECT_GE(*least, std::min(s.stages, s.micro_batches));
    EXPECT_EQ(*most, groups.front());
  });
}

}  // namespace
}  // namespace spillway
