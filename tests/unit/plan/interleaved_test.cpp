// Interleaved 1F1B: Megatron-LM's order where its groups divide, and no deadlock anywhere.
#include "plan/schedule/interleaved.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

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
    if (s.micro_batches % s.stages != 0) return;
    EXPECT_EQ(interleaved_one_forward_one_backward(s), with_groups_of_stages(s));
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

/// min(m v, w + 1) pairs.
TEST(Interleaved, PairsInFlightAreTheWarmUpsAndOne) {
  for_every_shape([](const ScheduleShape& s) {
    for (int stage = 0; stage < s.stages; ++stage)
      ASSERT_EQ(peak_live(interleaved_order(s, stage)),
                std::min(s.micro_batches * s.chunks, warm_up_forwards(s, stage) + 1))
          << "p " << s.stages << ", v " << s.chunks << ", m " << s.micro_batches << ", stage " << stage;
  });
}

TEST(Interleaved, InFlightOnTheFirstStageInMicroBatches) {
  const auto live = [](const ScheduleShape& s, int stage) {
    return static_cast<double>(peak_live(interleaved_order(s, stage))) / s.chunks;
  };
  EXPECT_DOUBLE_EQ(live({4, 8, 1}, 0), 4);
  EXPECT_DOUBLE_EQ(live({4, 8, 2}, 0), 5.5);
  EXPECT_DOUBLE_EQ(live({8, 56, 2}, 0), 11.5);
  EXPECT_DOUBLE_EQ(live({8, 56, 4}, 0), 9.75);
  EXPECT_DOUBLE_EQ(live({8, 56, 2}, 7), 4.5);  // the last stage: 8 of the warm-up and one, 2 chunks
  EXPECT_DOUBLE_EQ(live({4, 1, 4}, 0), 1);
}

/// Seconds of a schedule whose chunks take `forward` and `backward` seconds, with messages that take no time.
double makespan(const Schedule& schedule, double forward, double backward) {
  const int stages = static_cast<int>(schedule.size());
  int chunks = 1;
  for (const Task& t : schedule[0]) chunks = std::max(chunks, t.chunk + 1);
  std::map<std::tuple<int, Kind, int>, double> end;  // by piece of the model, kind, micro-batch
  std::vector<std::size_t> next(schedule.size(), 0);
  std::vector<double> free(schedule.size(), 0);
  const auto input = [&](int piece, const Task& t) -> const double* {
    static constexpr double at_once = 0;
    const int before = t.kind == Kind::forward ? piece - 1 : piece + 1;
    if (before < 0) return &at_once;
    const auto found = before == stages * chunks ? end.find({piece, Kind::forward, t.micro_batch})
                                                 : end.find({before, t.kind, t.micro_batch});
    return found == end.end() ? nullptr : &found->second;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < stages; ++r)
      while (next[r] < schedule[r].size()) {
        const Task& t = schedule[r][next[r]];
        const int piece = t.chunk * stages + r;
        const double* ready = input(piece, t);
        if (ready == nullptr) break;
        free[r] = std::max(free[r], *ready) + (t.kind == Kind::forward ? forward : backward);
        end[{piece, t.kind, t.micro_batch}] = free[r];
        ++next[r];
        moved = true;
      }
  }
  return *std::max_element(free.begin(), free.end());
}

/// (p - 1) / (v m) of the ideal time, for m a multiple of p, no latency and m large enough.
TEST(Interleaved, TheBubbleShrinksWithTheChunks) {
  for (const int p : {2, 4, 8})
    for (const int v : {1, 2, 4})
      for (const int m : {2 * p, 4 * p}) {
        const double forward = 1.0 / v, backward = 2.0 / v, ideal = 3.0 * m;
        const double bubble = makespan(interleaved_one_forward_one_backward({p, m, v}), forward, backward) / ideal - 1;
        EXPECT_NEAR(bubble, (p - 1.0) / (v * m), 1e-12) << "p " << p << ", v " << v << ", m " << m;
      }
}

}  // namespace
}  // namespace spillway
