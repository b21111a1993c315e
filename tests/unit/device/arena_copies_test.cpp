// Memory that is released while a copy still reads it: off the ledger at once, occupied until the copy has ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "device/arena.hpp"

namespace spillway::device {
namespace {

constexpr auto category = Category::activation_moe;
constexpr auto out = CopyLane::out, in = CopyLane::in;

/// A block of 256 bytes takes a second.
struct SecondPerBlock final : TimeModel {
  Seconds compute(Work) const override { return Seconds(0); }
  Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(0); }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes bytes) const override { return Seconds(static_cast<double>(bytes.value) / 256); }
};
const SecondPerBlock model;

ArenaOptions options(std::int64_t blocks, std::int64_t backing = 1 << 20) {
  return {.cap = Bytes(256 * blocks), .alignment = Bytes(256), .backing = Bytes(backing), .poison_freed = false};
}
constexpr Bytes blocks(std::int64_t n) { return Bytes(256 * n); }

struct ArenaCopies : testing::Test {
  Clock clock{&model};
  CopyEngine engine{clock};
  std::vector<char> host = std::vector<char>(1 << 16);

  /// Copies a fresh block of n x 256 bytes out, ready at `ready`, and releases it; returns the block.
  void* offload(Arena& arena, std::int64_t n, double ready = 0) {
    void* block = arena.allocate(category, blocks(n));
    EXPECT_NE(block, nullptr);
    arena.release_after(block, engine.copy(out, {host.data(), block, blocks(n), Seconds(ready)}));
    return block;
  }
};

TEST_F(ArenaCopies, LeaveTheLedgerAtOnceAndAllocationsNeverFailForThem) {
  Arena arena(options(2));
  offload(arena, 2);
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  EXPECT_EQ(arena.still_copied(), blocks(2));
  EXPECT_NE(arena.allocate(category, blocks(2)), nullptr) << "the cap counts live blocks only";
  EXPECT_EQ(arena.allocate(category, Bytes(1)), nullptr);
}

TEST_F(ArenaCopies, RoomWaitsForTheOldestUntilTheBlockFits) {
  Arena arena(options(8));
  arena.allocate(category, blocks(1));
  offload(arena, 3);  // ends at 3
  offload(arena, 1);  // at 4
  offload(arena, 2);  // at 6
  EXPECT_EQ(arena.make_room(blocks(1), Seconds(0)), Seconds(0)) << "1 + 6 + 1 blocks fit 8";
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(0)), Seconds(3)) << "the oldest frees enough";
  EXPECT_EQ(arena.still_copied(), blocks(3));
  EXPECT_EQ(arena.make_room(blocks(4), Seconds(0)), Seconds(0)) << "what was waited for stays free";
  EXPECT_EQ(arena.make_room(Bytes(4 * 256 + 1), Seconds(0)), Seconds(4)) << "asked bytes are rounded up";
  EXPECT_EQ(arena.make_room(blocks(6), Seconds(0)), Seconds(6));
  EXPECT_EQ(arena.still_copied(), Bytes(0));
}

TEST_F(ArenaCopies, ThatHaveEndedByTheLanesTimeNeedNoWaiting) {
  Arena arena(options(4));
  offload(arena, 2);     // ends at 2
  offload(arena, 1, 8);  // at 9
  EXPECT_EQ(arena.make_room(blocks(3), Seconds(1.5)), Seconds(2));
  offload(arena, 1);  // at 10
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(9)), Seconds(0));
  EXPECT_EQ(arena.still_copied(), blocks(1)) << "ends at 10";
  EXPECT_EQ(arena.make_room(blocks(4), Seconds(9)), Seconds(10));
}

TEST_F(ArenaCopies, AreWaitedForInTheOrderOfReleaseAndTheLatestEndCounts) {
  Arena arena(options(4));
  void* late = arena.allocate(category, blocks(1));
  void* early = arena.allocate(category, blocks(2));
  arena.release_after(late, engine.copy(out, {host.data(), late, blocks(1), Seconds(20)}));
  arena.release_after(early, engine.copy(in, {host.data() + 4096, early, blocks(2), Seconds(5)}));
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(0)), Seconds(21));
  EXPECT_EQ(arena.make_room(blocks(4), Seconds(0)), Seconds(7));
  EXPECT_EQ(arena.still_copied(), Bytes(0));
}

TEST_F(ArenaCopies, MoreThanTheCapWaitsForAllCopiesAndIsRefused) {
  Arena arena(options(2));
  offload(arena, 1);
  offload(arena, 1);
  EXPECT_EQ(arena.make_room(blocks(3), Seconds(0)), Seconds(2));
  EXPECT_EQ(arena.allocate(category, blocks(3)), nullptr);
}

TEST_F(ArenaCopies, AllCountAsEndedAtTheClocksNowSoThatItMayRestart) {
  Arena arena(options(2));
  offload(arena, 2, 100);
  EXPECT_EQ(arena.make_room(Bytes(0), clock.now()), Seconds(0));
  clock.restart();
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(0)), Seconds(0)) << "an end of the time before the restart";
}

TEST_F(ArenaCopies, OfZeroBytesAndHandlesOfNoCopyOccupyNothing) {
  Arena arena(options(1));
  arena.release_after(arena.allocate(category, Bytes(0)), engine.copy(out, {host.data(), host.data(), Bytes(0), {}}));
  EXPECT_EQ(arena.still_copied(), Bytes(0));
  arena.release_after(arena.allocate(category, blocks(1)), Event{});
  EXPECT_EQ(arena.make_room(blocks(1), Seconds(0)), Seconds(0));
  EXPECT_EQ(arena.still_copied(), Bytes(0));
  EXPECT_THROW(arena.release_after(host.data(), Event{}), InternalError);
}

TEST_F(ArenaCopies, BlocksReleasedWithoutACopyAreFreeAtOnce) {
  Arena arena(options(2));
  void* block = arena.allocate(category, blocks(2));
  arena.release(block);
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(0)), Seconds(0));
  EXPECT_EQ(arena.allocate(category, blocks(2)), block);
  arena.release_when(block, [] { return false; });
  EXPECT_EQ(arena.make_room(blocks(2), Seconds(0)), Seconds(0)) << "messages do not count";
}

/// The rule as it reads: released blocks in order, each with the end of its copy.
struct Books {
  struct Released {
    std::int64_t size;
    double end;
  };
  std::int64_t cap;
  std::int64_t live = 0;
  std::vector<Released> released = {};

  std::int64_t occupied() const {
    std::int64_t sum = live;
    for (const Released& r : released) sum += r.size;
    return sum;
  }
  double make_room(std::int64_t size, double now) {
    std::erase_if(released, [=](const Released& r) { return r.end <= now; });
    double latest = 0;
    while (!released.empty() && occupied() + size > cap) {
      latest = std::max(latest, released.front().end);
      released.erase(released.begin());
    }
    return latest;
  }
};

TEST_F(ArenaCopies, RandomCampaignKeepsTheBooksOfASimpleModel) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const CounterRandom random(seed);
    clock.restart();
    Arena arena(options(40));
    Books books{40};
    std::vector<std::pair<void*, std::int64_t>> live;
    double now = 0;
    int waits = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
      const std::uint64_t draw = 5 * i;
      const auto size = static_cast<std::int64_t>(1 + random.below(draw, 12));
      now += static_cast<double>(random.below(draw + 1, 5));
      const double expected = books.make_room(size, now);
      ASSERT_EQ(arena.make_room(blocks(size), Seconds(now)), Seconds(expected)) << "seed " << seed << ", step " << i;
      waits += expected > 0 ? 1 : 0;
      if (void* block = arena.allocate(category, blocks(size))) {
        live.emplace_back(block, size);
        books.live += size;
        ASSERT_LE(books.occupied(), books.cap);
      }
      ASSERT_EQ(arena.ledger().live() + arena.still_copied(), blocks(books.occupied()));
      if (live.empty() || random.below(draw + 2, 3) == 0) continue;
      const auto victim = live.begin() + static_cast<std::ptrdiff_t>(random.below(draw + 3, live.size()));
      const auto [block, units] = *victim;
      live.erase(victim);
      books.live -= units;
      const CopyLane lane = random.below(draw + 4, 2) == 0 ? out : in;
      const Event copy = engine.copy(lane, {host.data(), block, blocks(units), Seconds(now)});
      arena.release_after(block, copy);
      books.released.push_back({units, copy.end().value});
    }
    EXPECT_GT(waits, 100) << "the campaign hardly ever waits";
  }
}

struct WallArenaCopies : testing::Test {
  static constexpr std::int64_t units = 1 << 14;  // 4 MiB
  Clock clock{nullptr};
  std::vector<float> host[4];

  /// Fills a new block with `value`, copies it to host[i] and releases it.
  void offload(Arena& arena, CopyEngine& engine, int i) {
    auto* block = static_cast<float*>(arena.allocate(category, blocks(units)));
    ASSERT_NE(block, nullptr);
    std::fill_n(block, units * 64, static_cast<float>(i + 1));
    host[i].assign(units * 64, 0.0f);
    arena.release_after(block, engine.copy(out, {host[i].data(), block, blocks(units), Seconds(0)}));
  }
  void expect_arrived() const {
    for (int i = 0; i < 4; ++i)
      ASSERT_EQ(std::count(host[i].begin(), host[i].end(), static_cast<float>(i + 1)), units * 64) << "copy " << i;
  }
};

TEST_F(WallArenaCopies, NobodyWritesTheSpaceBeforeTheCopyIsDone) {
  ArenaOptions poisoned = options(2 * units, 256 * 16 * units);
  poisoned.poison_freed = true;
  Arena arena(poisoned);
  CopyEngine engine(clock);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(arena.make_room(blocks(units), Seconds(0)), Seconds(0)) << "no virtual time";
    EXPECT_LE(arena.still_copied(), blocks(units));
    offload(arena, engine, i);
  }
  EXPECT_EQ(arena.make_room(blocks(2 * units), Seconds(0)), Seconds(0));
  EXPECT_EQ(arena.still_copied(), Bytes(0));
  auto* all = static_cast<float*>(arena.allocate(category, blocks(2 * units)));
  std::fill_n(all, 2 * units * 64, -1.0f);
  expect_arrived();
}

TEST_F(WallArenaCopies, WithoutAHoleAnAllocationWaitsForThemInsteadOfFailing) {
  Arena arena(options(units, 256 * units));
  CopyEngine engine(clock);
  for (int i = 0; i < 4; ++i) offload(arena, engine, i);
  EXPECT_NE(arena.allocate(category, blocks(units)), nullptr);
  expect_arrived();
}

TEST_F(WallArenaCopies, ArenaEndsAfterTheCopiesThatReadIt) {
  CopyEngine engine(clock);
  {
    Arena arena(options(4 * units, 256 * 4 * units));
    for (int i = 0; i < 4; ++i) offload(arena, engine, i);
  }
  expect_arrived();
}

}  // namespace
}  // namespace spillway::device
