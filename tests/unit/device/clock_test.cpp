// The virtual clock's lanes, worked by hand.
#include "device/clock.hpp"

#include <gtest/gtest.h>

namespace spillway::device {
namespace {

/// One second per FLOP, and per ten bytes copied; messages are not asked for.
struct SecondPerFlop final : TimeModel {
  Seconds compute(Work work) const override { return Seconds(static_cast<double>(work.flops.value)); }
  Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(0); }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes bytes) const override { return Seconds(static_cast<double>(bytes.value) / 10); }
};
const SecondPerFlop model;

Interval compute(Clock& clock, double ready, std::int64_t flops) {
  return clock.compute_end(clock.compute_start(Seconds(ready)), {Flops(flops), Bytes(0)});
}
Interval network(Clock& clock, double ready, double seconds) {
  const Seconds start = clock.network_start(Seconds(ready));
  return clock.network_end(start, start + Seconds(seconds));
}
void expect(Interval interval, double start, double end) {
  EXPECT_EQ(interval.start, Seconds(start));
  EXPECT_EQ(interval.end, Seconds(end));
}

TEST(VirtualClock, LanesAdvanceInProgramOrderAndWaitForTheirInputs) {
  Clock clock(&model);
  ASSERT_TRUE(clock.is_virtual());
  expect(compute(clock, 0, 3), 0, 3);
  expect(network(clock, 3, 4), 3, 7);  // sends what compute made
  expect(compute(clock, 0, 2), 3, 5);  // beside it
  expect(network(clock, 0, 1), 7, 8);  // one message after the other, ready or not
  expect(compute(clock, 8, 1), 8, 9);  // idle until the message is there
  expect(compute(clock, 8, 0), 9, 9);  // no work takes no time
  EXPECT_EQ(clock.compute_lane(), Seconds(9));
  expect(network(clock, 20, 1), 20, 21);
  EXPECT_EQ(clock.now(), Seconds(21));  // the later of the lanes
}

TEST(VirtualClock, CopiesOfADirectionFollowEachOtherAndWaitForNoOtherLane) {
  Clock clock(&model);
  compute(clock, 0, 4);
  expect(clock.copy(CopyLane::out, Seconds(4), Bytes(30)), 4, 7);  // once computed
  expect(clock.copy(CopyLane::out, Seconds(0), Bytes(20)), 7, 9);  // one after the other, ready or not
  expect(clock.copy(CopyLane::in, Seconds(0), Bytes(10)), 0, 1);   // beside everything
  expect(clock.copy(CopyLane::in, Seconds(9), Bytes(40)), 9, 13);
  EXPECT_EQ(clock.copy_lane(CopyLane::out), Seconds(9));
  EXPECT_EQ(clock.compute_lane(), Seconds(4));
  EXPECT_EQ(clock.now(), Seconds(13)) << "the latest of all lanes";
  clock.copy(CopyLane::out, Seconds(20), Bytes(10));
  EXPECT_EQ(clock.now(), Seconds(21));
}

TEST(VirtualClock, RestartPutsAllLanesAtZero) {
  Clock clock(&model);
  compute(clock, 0, 3);
  network(clock, 0, 5);
  for (const CopyLane lane : {CopyLane::out, CopyLane::in}) clock.copy(lane, Seconds(8), Bytes(10));
  clock.restart();
  EXPECT_EQ(clock.now(), Seconds(0));
  expect(compute(clock, 0, 1), 0, 1);
  expect(network(clock, 0, 1), 0, 1);
  for (const CopyLane lane : {CopyLane::out, CopyLane::in}) expect(clock.copy(lane, Seconds(0), Bytes(10)), 0, 1);
}

TEST(WallClock, DoesNotWaitForInputsThatAreThereAndNeverRunsBackwards) {
  Clock clock(nullptr);
  EXPECT_FALSE(clock.is_virtual());
  const Interval first = compute(clock, 1e9, 1000);
  EXPECT_LT(first.end, Seconds(1e6)) << "measured, whatever the model would say";
  EXPECT_LE(first.start, first.end);
  EXPECT_GE(clock.now(), first.end);
  clock.restart();
  EXPECT_EQ(clock.compute_lane(), Seconds(0));
  EXPECT_THROW(clock.copy(CopyLane::out, Seconds(0), Bytes(1)), InternalError);
  EXPECT_THROW(clock.network_end(Seconds(0), Seconds(1)), InternalError);
}

}  // namespace
}  // namespace spillway::device
