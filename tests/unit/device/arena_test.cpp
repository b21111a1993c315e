// The arena: a cap to the byte, space that is used again, and holes that grow together.
#include "device/arena.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spillway::device {
namespace {

constexpr auto category = Category::activation_moe;

ArenaOptions options(std::int64_t cap, std::int64_t backing = 1 << 20) {
  return {.cap = Bytes(cap), .alignment = Bytes(256), .backing = Bytes(backing), .poison_freed = false};
}

std::int64_t distance(void* from, void* to) { return static_cast<char*>(to) - static_cast<char*>(from); }

TEST(Arena, CapHoldsToTheByteOfRoundedBlocks) {
  Arena arena(options(1024));
  EXPECT_NE(arena.allocate(category, Bytes(1)), nullptr);    // 256
  EXPECT_NE(arena.allocate(category, Bytes(257)), nullptr);  // 512
  EXPECT_EQ(arena.allocate(category, Bytes(257)), nullptr);
  EXPECT_EQ(arena.ledger().live(), Bytes(768));  // a refusal leaves no trace
  EXPECT_NE(arena.allocate(category, Bytes(256)), nullptr);
  EXPECT_EQ(arena.ledger().live(), Bytes(1024));
  EXPECT_EQ(arena.allocate(category, Bytes(1)), nullptr);
  EXPECT_EQ(arena.ledger().peak(), Bytes(1024));
}

TEST(Arena, CapThatIsNoMultipleOfTheAlignmentIsNotExceeded) {
  Arena arena(options(1023));
  EXPECT_EQ(arena.allocate(category, Bytes(1023)), nullptr);  // rounded, 1024
  EXPECT_NE(arena.allocate(category, Bytes(768)), nullptr);
}

TEST(Arena, BlocksAreAlignedAndDoNotOverlap) {
  Arena arena(options(1 << 16));
  void* first = arena.allocate(category, Bytes(1));
  void* second = arena.allocate(category, Bytes(300));
  void* third = arena.allocate(category, Bytes(1));
  EXPECT_EQ(distance(first, second), 256);
  EXPECT_EQ(distance(second, third), 512);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
}

TEST(Arena, ZeroBytesCostNothingAndAreNobodysBlock) {
  Arena arena(options(256));
  void* nothing = arena.allocate(category, Bytes(0));
  void* block = arena.allocate(category, Bytes(256));
  ASSERT_NE(nothing, nullptr);
  EXPECT_NE(nothing, block);
  arena.release(nothing);
  arena.release_when(nothing, [] { return false; });
  EXPECT_EQ(arena.ledger().live(), Bytes(256)) << "releasing nothing released a block";
  EXPECT_NE(arena.allocate(category, Bytes(0)), nullptr) << "zero bytes fit a full arena";
}

TEST(Arena, ReleasedSpaceIsUsedAgainFromTheLowestAddress) {
  Arena arena(options(1 << 16));
  void* first = arena.allocate(category, Bytes(512));
  arena.allocate(category, Bytes(256));
  arena.release(first);
  EXPECT_EQ(arena.allocate(category, Bytes(300)), first);
}

TEST(Arena, NeighbouringHolesGrowTogether) {
  Arena arena(options(1 << 16));
  void* blocks[4];
  for (void*& b : blocks) b = arena.allocate(category, Bytes(256));
  arena.release(blocks[0]);
  arena.release(blocks[2]);
  arena.release(blocks[1]);  // joins both sides
  EXPECT_EQ(arena.allocate(category, Bytes(768)), blocks[0]);
}

TEST(Arena, ReservedIsTheHighestAddressEverUsed) {
  Arena arena(options(1 << 16));
  EXPECT_EQ(arena.reserved(), Bytes(0));
  void* first = arena.allocate(category, Bytes(256));
  arena.allocate(category, Bytes(256));
  arena.release(first);
  EXPECT_EQ(arena.reserved(), Bytes(512));
  arena.allocate(category, Bytes(512));  // does not fit the hole of 256
  EXPECT_EQ(arena.reserved(), Bytes(1024));
  EXPECT_EQ(arena.ledger().live(), Bytes(768));
  arena.allocate(category, Bytes(256));  // does
  EXPECT_EQ(arena.reserved(), Bytes(1024));
  arena.reset_peaks();
  EXPECT_EQ(arena.reserved(), Bytes(1024)) << "address space once used stays used";
}

TEST(Arena, SpaceReleasedOnIdleLeavesTheLedgerAtOnceButIsNotGivenAwayBefore) {
  Arena arena(options(256));
  bool idle = false;
  void* busy = arena.allocate(category, Bytes(256));
  arena.release_when(busy, [&] { return idle; });
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  void* other = arena.allocate(category, Bytes(256));
  ASSERT_NE(other, nullptr) << "the cap counts live blocks only";
  EXPECT_NE(other, busy);
  arena.release(other);
  idle = true;
  EXPECT_EQ(arena.allocate(category, Bytes(256)), busy);
}

TEST(Arena, BlockReleasedTwiceIsRefused) {
  Arena arena(options(1 << 16));
  void* block = arena.allocate(category, Bytes(256));
  arena.release(block);
  EXPECT_THROW(arena.release(block), InternalError);
  EXPECT_THROW(arena.release_when(block, [] { return true; }), InternalError);
  int elsewhere = 0;
  EXPECT_THROW(arena.release(&elsewhere), InternalError);
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
}

TEST(Arena, FreedBlocksAreFullOfNaNsAndBusyOnesOnlyOnceIdle) {
  ArenaOptions poisoned = options(1 << 16);
  poisoned.poison_freed = true;
  Arena arena(poisoned);
  auto* freed = static_cast<float*>(arena.allocate(category, Bytes(1024)));
  auto* busy = static_cast<float*>(arena.allocate(category, Bytes(1024)));
  auto* neighbour = static_cast<float*>(arena.allocate(category, Bytes(1024)));
  for (auto* block : {freed, busy, neighbour}) std::fill_n(block, 256, 1.0f);
  bool idle = false;
  arena.release(freed);
  arena.release_when(busy, [&] { return idle; });
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(std::isnan(freed[i]) && busy[i] == 1.0f && neighbour[i] == 1.0f);
  idle = true;
  arena.allocate(category, Bytes(4096));  // looks for idle space
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(std::isnan(busy[i]) && neighbour[i] == 1.0f);
}

TEST(Arena, BackingWithoutAHoleIsAnEnvironmentErrorThatNamesTheSizes) {
  Arena arena(options(1 << 16, 1024));
  arena.allocate(category, Bytes(768));
  EXPECT_THROW(arena.allocate(category, Bytes(512)), EnvironmentError);
  EXPECT_NE(arena.allocate(category, Bytes(256)), nullptr);
}

/// The simplest allocator with the same promise: first fit over a map of the bytes' owners, in units of the alignment.
class FirstFit {
 public:
  explicit FirstFit(std::int64_t units) : owner_(static_cast<std::size_t>(units), 0) {}
  std::int64_t take(int id, std::int64_t units) {
    for (std::size_t at = 0; at + static_cast<std::size_t>(units) <= owner_.size(); ++at) {
      const auto first = owner_.begin() + static_cast<std::ptrdiff_t>(at);
      if (std::any_of(first, first + units, [](int o) { return o != 0; })) continue;
      std::fill_n(first, units, id);
      return static_cast<std::int64_t>(at);
    }
    return -1;
  }
  void give(int id) { std::replace(owner_.begin(), owner_.end(), id, 0); }

 private:
  std::vector<int> owner_;
};

TEST(Arena, RandomCampaignAgreesWithASimpleModel) {
  constexpr std::int64_t units = 200, cap_units = 90;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const CounterRandom random(seed);
    Arena arena(options(cap_units * 256, units * 256));
    char* base = static_cast<char*>(arena.allocate(category, Bytes(256)));
    arena.release(base);
    FirstFit model(units);
    std::vector<bool> idle(3000, true);
    std::map<int, std::pair<char*, std::int64_t>> live, busy;  // id -> block, units
    std::int64_t live_units = 0;
    for (int id = 1; id < 2000; ++id) {
      const std::uint64_t draw = 4 * static_cast<std::uint64_t>(id);
      const std::int64_t size = 1 + static_cast<std::int64_t>(random.below(draw, 20 * 256));
      const std::int64_t rounded = (size + 255) / 256;
      // Messages that have ended free their space at the next allocation that the cap allows.
      const bool fits = live_units + rounded <= cap_units;
      if (fits)
        for (auto b = busy.begin(); b != busy.end();) {
          if (!idle[static_cast<std::size_t>(b->first)]) {
            ++b;
            continue;
          }
          model.give(b->first);
          b = busy.erase(b);
        }
      char* block = static_cast<char*>(arena.allocate(category, Bytes(size)));
      ASSERT_EQ(block != nullptr, fits);
      if (fits) {
        ASSERT_EQ(block - base, 256 * model.take(id, rounded)) << "seed " << seed << ", step " << id;
        live[id] = {block, rounded};
        live_units += rounded;
      }
      if (!live.empty() && random.below(draw + 1, 2) == 0) {
        const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random.below(draw + 2, live.size())));
        const int who = victim->first;
        live_units -= victim->second.second;
        if (random.below(draw + 3, 4) == 0 && busy.size() < 3) {
          idle[static_cast<std::size_t>(who)] = false;
          arena.release_when(victim->second.first, [&idle, who] { return idle[static_cast<std::size_t>(who)]; });
          busy[who] = victim->second;
        } else {
          arena.release(victim->second.first);
          model.give(who);
        }
        live.erase(victim);
      }
      if (id % 7 == 0 && !busy.empty()) idle[static_cast<std::size_t>(busy.begin()->first)] = true;
      ASSERT_EQ(arena.ledger().live(), Bytes(256 * live_units));
    }
  }
}

}  // namespace
}  // namespace spillway::device
