// 1F1B as published, for every number of micro-batches, and the proof that a schedule cannot deadlock.
#include "plan/schedule/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace spillway {
namespace {

using Kind = Task::Kind;

std::vector<std::string> listing(ScheduleShape shape) {
  std::vector<std::string> stages;
  for (const auto& order : one_forward_one_backward(shape)) stages.push_back(to_text(order));
  return stages;
}

TEST(OneForwardOneBackward, EveryShapeRunsEveryMicroBatchOnceEachWayWithoutDeadlock) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 17; ++m) {
      const Schedule schedule = one_forward_one_backward({p, m});
      ASSERT_EQ(std::ssize(schedule), p);
      ASSERT_EQ(find_deadlock(schedule), "") << "p " << p << ", m " << m;
      for (const auto& order : schedule) {
        ASSERT_EQ(std::ssize(order), 2 * m);
        for (const Kind kind : {Kind::forward, Kind::backward})
          for (int i = 0; i < m; ++i) ASSERT_EQ(std::count(order.begin(), order.end(), Task{kind, i, 0}), 1);
      }
    }
}

TEST(OneForwardOneBackward, StageRHoldsAtMostPMinusRMicroBatches) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 17; ++m) {
      const Schedule schedule = one_forward_one_backward({p, m});
      for (int r = 0; r < p; ++r)
        ASSERT_EQ(peak_live(schedule[r]), std::min(p - r, m)) << "p " << p << ", m " << m << ", stage " << r;
    }
}

TEST(OneForwardOneBackward, ListingForFourStagesAndEightMicroBatches) {
  EXPECT_EQ(listing({4, 8}), (std::vector<std::string>{"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
                                                       "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                                                       "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
                                                       "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"}));
}

// Reported elsewhere: a hang with fewer micro-batches than stages, a deadlock with as many.
TEST(Reports06, OneMicroBatch) {
  EXPECT_EQ(listing({4, 1}), (std::vector<std::string>{"F0 B0", "F0 B0", "F0 B0", "F0 B0"}));
}
TEST(Reports06, OneMicroBatchLessThanStages) {
  EXPECT_EQ(listing({4, 3}), (std::vector<std::string>{"F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2", "F0 F1 B0 F2 B1 B2",
                                                       "F0 B0 F1 B1 F2 B2"}));
}
TEST(Reports06, AsManyMicroBatchesAsStages) {
  EXPECT_EQ(listing({4, 4}), (std::vector<std::string>{"F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 F2 B0 F3 B1 B2 B3",
                                                       "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}));
}
TEST(Reports06, OneMicroBatchMoreThanStages) {
  EXPECT_EQ(listing({4, 5})[0], "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(listing({4, 5})[3], "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}
TEST(Reports06, MicroBatchesThatAreNoMultipleOfTheStages) {
  EXPECT_EQ(listing({4, 6})[0], "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(listing({2, 7}), (std::vector<std::string>{"F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 B6",
                                                       "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6"}));
}

TEST(FindDeadlock, NamesTheStageAndTheTaskOfABrokenOrder) {
  Schedule schedule = one_forward_one_backward({2, 2});
  std::swap(schedule[1][0], schedule[1][1]);  // B0 before F0 on the last stage
  EXPECT_EQ(find_deadlock(schedule), "stage 0 waits for ever before B0");
  std::swap(schedule[1][0], schedule[1][1]);
  std::swap(schedule[0][0], schedule[0][2]);  // B0 before F0 on the first stage
  EXPECT_EQ(find_deadlock(schedule), "stage 0 waits for ever before B0");
  schedule[1] = {{Kind::forward, 0}, {Kind::forward, 1}, {Kind::backward, 1}, {Kind::backward, 0}};
  schedule[0] = {{Kind::forward, 0}, {Kind::backward, 0}, {Kind::forward, 1}, {Kind::backward, 1}};
  EXPECT_EQ(find_deadlock(schedule), "stage 0 waits for ever before B0");  // stage 1 wants F1 first
}

TEST(FindDeadlock, FindsAMicroBatchThatANeighbourNeverRuns) {
  Schedule schedule = one_forward_one_backward({3, 2});
  std::erase(schedule[0], Task{Kind::forward, 1, 0});
  EXPECT_NE(find_deadlock(schedule), "");
}

TEST(FindDeadlock, ChunksPassFromTheLastStageBackToTheFirst) {
  const std::vector<Task> right = {{Kind::forward, 0, 0},
                                   {Kind::forward, 0, 1},
                                   {Kind::backward, 0, 1},
                                   {Kind::backward, 0, 0}};
  EXPECT_EQ(find_deadlock({right, right}), "");
  const std::vector<Task> wrong = {{Kind::forward, 0, 1},
                                   {Kind::forward, 0, 0},
                                   {Kind::backward, 0, 1},
                                   {Kind::backward, 0, 0}};
  EXPECT_EQ(find_deadlock({wrong, right}), "stage 0 waits for ever before F0.1");
}

}  // namespace
}  // namespace spillway
