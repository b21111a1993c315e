// Copies on both clocks: their times worked by hand, their bytes in order, and ends that wait for them.
#include "device/copies.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

namespace spillway::device {
namespace {

/// A second per ten bytes.
struct SlowLink final : TimeModel {
  Seconds compute(Work) const override { return Seconds(0); }
  Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(0); }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes bytes) const override { return Seconds(static_cast<double>(bytes.value) / 10); }
};
const SlowLink model;

using Memory = std::vector<int>;
constexpr auto out = CopyLane::out, in = CopyLane::in;

Memory numbers(int first, std::size_t n = 1 << 18) {
  Memory memory(n);
  std::iota(memory.begin(), memory.end(), first);
  return memory;
}
Copy whole(Memory& to, const Memory& from, std::optional<Event> after = std::nullopt) {
  return {to.data(), from.data(), Bytes(static_cast<std::int64_t>(from.size() * sizeof(int))), Seconds(0), after};
}
Copy timed(double ready, std::int64_t bytes, std::optional<Event> after = std::nullopt) {
  static char from[1000], to[1000];
  return {to, from, Bytes(bytes), Seconds(ready), after};
}

TEST(VirtualCopies, EndWhenTheirLaneTheirSourceAndTheCopyBeforeThemAllow) {
  Clock clock(&model);
  CopyEngine engine(clock);
  const Event first = engine.copy(out, timed(2, 30));
  EXPECT_EQ(first.end(), Seconds(5));
  EXPECT_EQ(engine.copy(out, timed(0, 10)).end(), Seconds(6)) << "the lane";
  const Event second = engine.copy(in, timed(1, 20, first));
  EXPECT_EQ(second.end(), Seconds(7)) << "the copy before";
  EXPECT_EQ(engine.copy(in, timed(9, 10, first)).end(), Seconds(10)) << "the source";
  EXPECT_EQ(engine.copy(in, timed(0, 0, second)).end(), Seconds(10)) << "no bytes take no time";
  EXPECT_EQ(clock.copy_lane(out), Seconds(6));
  EXPECT_EQ(clock.now(), Seconds(10));
}

TEST(VirtualCopies, BytesAreThereOnReturn) {
  Clock clock(&model);
  CopyEngine engine(clock);
  const Memory from = numbers(7);
  Memory to(from.size());
  const Event event = engine.copy(out, whole(to, from));
  EXPECT_TRUE(event.done());
  event.wait();
  EXPECT_EQ(to, from);
}

TEST(Copies, AHandleThatNoEngineGaveHasEnded) {
  const Event none;
  EXPECT_TRUE(none.done());
  none.wait();
  EXPECT_EQ(none.end(), Seconds(0));
  Clock clock(&model);
  EXPECT_EQ(CopyEngine(clock).copy(in, timed(3, 10, none)).end(), Seconds(4));
}

TEST(Copies, TellWhenTheyRanOnEitherClock) {
  Clock seconds(&model);
  CopyEngine engine(seconds);
  engine.copy(out, timed(0, 40));
  const Event second = engine.copy(out, timed(1, 30));
  EXPECT_EQ(second.ran().start, Seconds(4));
  EXPECT_EQ(second.ran().end, Seconds(7));

  Clock wall(nullptr);
  CopyEngine beside(wall);
  const Memory from = numbers(1);
  Memory to(from.size());
  const Seconds issued = wall.now();
  const Event copy = beside.copy(in, whole(to, from));
  copy.wait();
  EXPECT_GE(copy.ran().start, issued);
  EXPECT_GT(copy.ran().end, copy.ran().start);
  EXPECT_LE(copy.ran().end, wall.now());
}

TEST(WallCopies, BringEveryByteAndShowNoVirtualTime) {
  Clock clock(nullptr);
  CopyEngine engine(clock);
  for (const CopyLane lane : {out, in}) {
    const Memory from = numbers(1);
    Memory to(from.size());
    const Event event = engine.copy(lane, whole(to, from));
    const Event same = event;
    same.wait();
    EXPECT_TRUE(event.done());
    EXPECT_EQ(event.end(), Seconds(0));
    EXPECT_EQ(to, from);
    EXPECT_GT(event.ran().duration(), Seconds(0));
  }
  EXPECT_EQ(clock.copy_lane(out), Seconds(0));
  engine.copy(out, {nullptr, nullptr, Bytes(0), Seconds(0)}).wait();
}

TEST(WallCopies, OfALaneRunInTheOrderOfIssue) {
  Clock clock(nullptr);
  CopyEngine engine(clock);
  std::vector<Memory> chain = {numbers(3)};
  for (int i = 0; i < 20; ++i) chain.emplace_back(chain[0].size());
  Event last;
  for (std::size_t i = 1; i < chain.size(); ++i) last = engine.copy(out, whole(chain[i], chain[i - 1]));
  last.wait();
  EXPECT_EQ(chain.back(), chain[0]) << "a later copy ran before the one that it reads from";
}

TEST(WallCopies, WaitForTheCopyBeforeThemInTheOtherLane) {
  Clock clock(nullptr);
  CopyEngine engine(clock);
  const Memory device = numbers(5);
  Memory host(device.size()), back(device.size());
  Event event;
  for (int i = 0; i < 20; ++i) {
    std::fill(host.begin(), host.end(), -1);
    event = engine.copy(out, whole(host, device));
    event = engine.copy(in, whole(back, host, event));
    event.wait();
    ASSERT_EQ(back, device) << "round " << i << ": copied in before it was out";
    std::fill(back.begin(), back.end(), -2);
  }
}

TEST(WallCopies, EngineEndsAfterAllCopiesAndTheirHandlesOutliveIt) {
  Clock clock(nullptr);
  const Memory from = numbers(9);
  std::vector<Memory> hosts(8, Memory(from.size())), backs = hosts;
  std::vector<Event> events;
  {
    CopyEngine engine(clock);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      events.push_back(engine.copy(out, whole(hosts[i], from)));
      events.push_back(engine.copy(in, whole(backs[i], hosts[i], events.back())));
    }
  }
  for (const Event& e : events) EXPECT_TRUE(e.done());
  for (std::size_t i = 0; i < hosts.size(); ++i) ASSERT_TRUE(hosts[i] == from && backs[i] == from);
}

TEST(WallCopies, ManyShortOnesInBothLanesAllArrive) {
  Clock clock(nullptr);
  CopyEngine engine(clock);
  constexpr std::size_t n = 4000;
  const Memory from = numbers(0, n);
  Memory host(n), back(n);
  std::vector<Event> events;
  for (std::size_t i = 0; i < n; ++i) {
    const Bytes one(sizeof(int));
    events.push_back(engine.copy(out, {&host[i], &from[i], one, Seconds(0)}));
    events.push_back(engine.copy(in, {&back[i], &host[i], one, Seconds(0), events.back()}));
  }
  for (auto e = events.rbegin(); e != events.rend(); ++e) e->wait();
  EXPECT_EQ(back, from);
}

}  // namespace
}  // namespace spillway::device
