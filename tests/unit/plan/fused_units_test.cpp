// Fused units: no deadlock, halves that do not need each other, one more micro-batch in flight.
#include "plan/schedule/fused_units.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/random.hpp"
#include "plan/schedule/gpipe.hpp"
#include "plan/schedule/interleaved.hpp"

namespace spillway {
namespace {

using Kind = Task::Kind;

/// 544 shapes: 1 to 8 stages, 1 to 4 chunks, 1 to 17 micro-batches.
void for_every_shape(const std::function<void(const ScheduleShape&)>& check) {
  for (int p = 1; p <= 8; ++p)
    for (int v = 1; v <= 4; ++v)
      for (int m = 1; m <= 17; ++m) {
        SCOPED_TRACE(testing::Message() << "p " << p << ", v " << v << ", m " << m);
        check({p, m, v});
      }
}

TEST(FusedUnits, NoShapeDeadlocks) {
  for_every_shape([](const ScheduleShape& s) { EXPECT_EQ(find_deadlock(fused_units(s)), ""); });
}

TEST(FusedUnits, AreAForwardAndABackwardOfOthersWhoseOwnForwardIsDone) {
  for_every_shape([](const ScheduleShape& s) {
    for (const auto& order : fused_units(s)) {
      ASSERT_EQ(std::ssize(order), 2 * s.micro_batches * s.chunks);
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (!order[i].beside_next) continue;
        ASSERT_EQ(order[i].kind, Kind::forward);
        ASSERT_EQ(order[i + 1].kind, Kind::backward);
        const auto forward = Task{Kind::forward, order[i + 1].micro_batch, order[i + 1].chunk};
        const bool done =
            std::any_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(i), [&](const Task& t) {
              return t.kind == forward.kind && t.micro_batch == forward.micro_batch && t.chunk == forward.chunk;
            });
        ASSERT_TRUE(done) << to_text(order);
      }
    }
  });
}

TEST(FusedUnits, EverySteadyForwardIsInOne) {
  for_every_shape([](const ScheduleShape& s) {
    const Schedule schedule = fused_units(s);
    for (int r = 0; r < s.stages; ++r) {
      const auto units = std::count_if(schedule[r].begin(), schedule[r].end(), [](auto& t) { return t.beside_next; });
      EXPECT_EQ(units, std::max(0, s.micro_batches * s.chunks - warm_up_of_units(s, r)));
    }
  });
}

/// Some of a stage's units taken in turn, by chance.
Schedule some_in_turn(Schedule schedule, std::uint64_t seed) {
  const CounterRandom random(seed);
  std::uint64_t n = 0;
  for (auto& order : schedule)
    for (std::size_t i = 0; i < order.size(); ++i)
      if (order[i].beside_next && random.below(n++, 2) == 0) {
        order[i].beside_next = false;
        std::swap(order[i], order[i + 1]);
      }
  return schedule;
}

TEST(Reductions, BeginWhenAllForwardPassesOfTheStageAreDone) {
  for_every_shape([](const ScheduleShape& s) {
    for (const Schedule& schedule :
         {fused_units(s), fused_units_with_barriers(s), interleaved_one_forward_one_backward(s), gpipe(s)})
      for (const auto& order : schedule)
        for (std::size_t i = first_final_backward(order); i < order.size(); ++i) {
          ASSERT_EQ(order[i].kind, Kind::backward) << to_text(order);
          ASSERT_FALSE(i > 0 && order[i - 1].beside_next) << to_text(order);
        }
  });
}

TEST(Reductions, ThatCoupleTwoColumnsDeadlockInNoShape) {
  for_every_shape([](const ScheduleShape& s) {
    const std::vector<Schedule> plain{interleaved_one_forward_one_backward(s), interleaved_one_forward_one_backward(s)};
    EXPECT_EQ(find_deadlock(plain), "");
    const Schedule fused = fused_units(s);
    const std::vector<Schedule> unlike{some_in_turn(fused, 1), some_in_turn(fused, 2), fused};
    EXPECT_EQ(find_deadlock(unlike), "");
  });
}

TEST(FindDeadlock, ColumnsThatReduceInAnotherOrderWaitForEver) {
  const Schedule one{{{Kind::forward, 0, 0}, {Kind::forward, 0, 1}, {Kind::backward, 0, 1}, {Kind::backward, 0, 0}}};
  Schedule other = one;
  EXPECT_EQ(find_deadlock(std::vector{one, other}), "");
  // Two micro-batches whose last backward passes are swapped: in either column alone no fault.
  const Schedule first{{{Kind::forward, 0, 0}, {Kind::forward, 1, 0}, {Kind::backward, 0, 0}, {Kind::backward, 1, 0}}};
  const Schedule second{{{Kind::forward, 0, 0}, {Kind::forward, 1, 0}, {Kind::backward, 1, 0}, {Kind::backward, 0, 0}}};
  EXPECT_EQ(find_deadlock(first), "");
  EXPECT_EQ(find_deadlock(second), "");
  EXPECT_EQ(find_deadlock(std::vector{first, second}), "stage 0 of column 0 waits for ever before B1");
}

TEST(LastBackward, OfEveryChunkIsTheLastOneInTheOrder) {
  const Schedule schedule = interleaved_one_forward_one_backward({2, 4, 2});
  EXPECT_EQ(last_backward_of_chunks(schedule[0]), (std::vector{3, 3}));
  const std::vector<Task> unlike{{Kind::backward, 1, 0},
                                 {Kind::backward, 0, 1},
                                 {Kind::backward, 0, 0},
                                 {Kind::forward, 5, 1}};
  EXPECT_EQ(last_backward_of_chunks(unlike), (std::vector{0, 0}));
  EXPECT_EQ(first_final_backward(unlike), 1u);
}

TEST(FusedUnits, ListingForTwoStagesAndFourMicroBatches) {
  const Schedule schedule = fused_units({2, 4, 1});
  EXPECT_EQ(to_text(schedule[0]), "F0 F1 F2 F3+B0 B1 B2 B3");
  EXPECT_EQ(to_text(schedule[1]), "F0 F1+B0 F2+B1 F3+B2 B3");
}

TEST(FusedUnits, InTurnAreInterleavedOneForwardOneBackward) {
  for (int stages = 1; stages <= 4; ++stages)
    for (int m = 1; m <= 9; ++m) {
      const ScheduleShape shape{stages, m, 2};
      EXPECT_EQ(in_turn(fused_units(shape)), interleaved_one_forward_one_backward(shape)) << stages << " " << m;
    }
}

TEST(FusedUnits, StagesWithoutRoomSaySo) {
  EXPECT_EQ(stages_without_units(fused_units({4, 2, 1})), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(stages_without_units(fused_units({1, 1, 1})), (std::vector<int>{0}));
  EXPECT_EQ(stages_without_units(fused_units({4, 5, 1})), (std::vector<int>{0, 1}));
  EXPECT_TRUE(stages_without_units(fused_units({4, 8, 1})).empty());
}

/// A unit waits for both its inputs: whole micro-batches that wait for each other are found.
TEST(FindDeadlock, AUnitWhoseHalvesNeedEachOtherWaitsForEver) {
  Schedule alone{{{Kind::forward, 0, 0, true}, {Kind::backward, 0, 0}}};
  EXPECT_EQ(find_deadlock(alone), "stage 0 waits for ever before F0+B0");
  const Schedule good = fused_units({2, 4, 1});
  Schedule early = good;  // stage 0 fuses too early: B0 needs what F1 gives stage 1
  early[0] = {{Kind::forward, 0, 0},  {Kind::forward, 1, 0, true}, {Kind::backward, 0, 0}, {Kind::forward, 2, 0, true},
              {Kind::backward, 1, 0}, {Kind::forward, 3, 0, true}, {Kind::backward, 2, 0}, {Kind::backward, 3, 0}};
  EXPECT_EQ(find_deadlock(good), "");
  EXPECT_EQ(find_deadlock(early), "stage 0 waits for ever before F1+B0");
}

}  // namespace
}  // namespace spillway
