// Budgets against brute force: a footprint within the budget never leads beyond the caps, one byte more does.
#include "plan/program/stage_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/schedule/fused_units.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

struct Stage {
  StageMemory::Setup setup;
  std::vector<Item> items;
  int micro_batches = 0;
};

std::vector<Footprint> footprints(const Stage& s, const StageMemory& memory) {
  std::vector<Footprint> list;
  for (int mb = 0; mb < s.micro_batches; ++mb)
    for (std::size_t b = 0; b < s.setup.blocks.size(); ++b) list.push_back(memory.decided(mb, static_cast<int>(b)));
  return list;
}

struct Peaks {
  Bytes device, host;
};
/// The definition, item by item: what is live before an item plus what it needs.
Peaks brute_force(const Stage& s, const std::vector<Footprint>& all) {
  Bytes held = s.setup.fixed, host;
  Peaks peaks{held, host};
  for (const Item& i : s.items) {
    const Footprint& f =
        all[static_cast<std::size_t>(i.micro_batch) * s.setup.blocks.size() + static_cast<std::size_t>(i.block)];
    Bytes now = held;
    if (i.kind == Kind::forward) {
      now = held + f.forward;
      held += f.held;
      host += f.host;
    } else if (i.kind == Kind::reload) {
      now = held += f.reloaded;
      host -= f.host;
    } else if (i.kind == Kind::backward) {
      held -= f.held + f.reloaded;
      now = held + f.backward;
    }
    peaks = {std::max(peaks.device, now), std::max(peaks.host, host)};
  }
  return peaks;
}

/// Stages of 1 to 4 blocks under 1F1B, the last with a loss that goes backward at once; footprints of at most some hundred
/// bytes, a cap between the least and much more.
Stage random_stage(std::uint64_t seed) {
  const CounterRandom random(seed);
  std::uint64_t n = 0;
  const auto below = [&](std::uint64_t limit) { return static_cast<std::int64_t>(random.below(n++, limit)); };
  Stage s;
  const int stages = 1 + static_cast<int>(below(5)),
            stage = static_cast<int>(below(static_cast<std::uint64_t>(stages)));
  s.micro_batches = 1 + static_cast<int>(below(7));
  s.setup.order = one_forward_one_backward({stages, s.micro_batches})[static_cast<std::size_t>(stage)];
  for (std::int64_t b = 1 + below(4); b > 0; --b) {
    const bool loss = b == 1 && stage == stages - 1;
    s.setup.blocks.push_back({loss ? BlockKind::square_loss : BlockKind::dense, 0, {}});
    const std::int64_t held = below(20), forward = held + below(50), backward = held + below(50);
    s.setup.least.push_back({Bytes(forward), Bytes(forward), Bytes(held), Bytes(backward), {}, {}});
  }
  s.setup.fixed = Bytes(below(100));
  s.setup.host_cap = Bytes(below(300));
  for (std::size_t t = 0; t < s.setup.order.size(); ++t)
    for (const Item& i : task_script(s.setup.order, t, s.setup.blocks)) s.items.push_back(i);
  std::vector<Footprint> least;
  for (int mb = 0; mb < s.micro_batches; ++mb) least.insert(least.end(), s.setup.least.begin(), s.setup.least.end());
  s.setup.cap = brute_force(s, least).device + Bytes(below(2) * below(400));
  return s;
}

Footprint random_footprint(const Budget& b, const CounterRandom& random, std::uint64_t& n) {
  const auto up_to = [&](Bytes limit) {
    const std::int64_t most = std::min<std::int64_t>(limit.value, 200);
    // Often all that is allowed, where budgets meet.
    return random.below(n++, 3) == 0 ? Bytes(most) : Bytes(static_cast<std::int64_t>(random.below(n++, most + 1)));
  };
  Footprint f;
  f.forward = up_to(b.forward);
  f.held = up_to(std::min(b.held, b.ready));
  f.reloaded = up_to(b.ready - f.held);
  f.backward = up_to(b.backward);
  f.host = up_to(b.host);
  return f;
}

/// Carries a stage through an iteration; at every forward block: visit(memory, micro-batch, block).
template <class Visit>
void for_every_forward(StageMemory& memory, const Visit& visit) {
  for (memory.restart(); !memory.finished(); memory.advance())
    if (memory.current().kind == Kind::forward) visit(memory.current().micro_batch, memory.current().block);
}

TEST(StageMemory, DecisionsWithinTheirBudgetsNeverLeadBeyondTheCaps) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Stage s = random_stage(seed);
    const CounterRandom random(seed, 1);
    std::uint64_t n = 0;
    StageMemory memory(s.setup);
    ASSERT_LE(memory.forecast(), s.setup.cap);
    for_every_forward(memory, [&](int mb, int b) {
      memory.decide(mb, b, random_footprint(memory.budget(mb, b), random, n));
      const Peaks peaks = brute_force(s, footprints(s, memory));
      ASSERT_LE(peaks.device, s.setup.cap) << "seed " << seed << ", micro-batch " << mb << ", block " << b;
      ASSERT_LE(peaks.host, s.setup.host_cap);
      ASSERT_EQ(memory.forecast(), peaks.device);
    });
    EXPECT_EQ(memory.level(), s.setup.fixed);
    EXPECT_EQ(memory.host_level(), Bytes(0));
    if (HasFatalFailure()) return;
  }
}

TEST(StageMemory, OneByteBeyondAnyLimitLeadsBeyondACap) {
  const auto beyond = [](const Budget& b, int limit) {
    Footprint f;
    if (limit == 0) f.forward = b.forward + Bytes(1);
    if (limit == 1) f.held = b.held + Bytes(1);
    if (limit == 2) f.reloaded = b.ready + Bytes(1);
    if (limit == 3) f.backward = b.backward + Bytes(1);
    if (limit == 4) f.host = b.host + Bytes(1);
    return f;
  };
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Stage s = random_stage(seed);
    const CounterRandom random(seed, 2);
    std::uint64_t n = 0;
    StageMemory memory(s.setup);
    for_every_forward(memory, [&](int mb, int b) {
      const Budget budget = memory.budget(mb, b);
      for (int limit = 0; limit < 5; ++limit) {
        const Footprint f = beyond(budget, limit);
        ASSERT_FALSE(fits(f, budget));
        memory.decide(mb, b, f);
        const Peaks peaks = brute_force(s, footprints(s, memory));
        ASSERT_TRUE(peaks.device > s.setup.cap || peaks.host > s.setup.host_cap)
            << "seed " << seed << ", limit " << limit << ", micro-batch " << mb << ", block " << b;
      }
      memory.decide(mb, b, random_footprint(budget, random, n));
    });
    if (HasFatalFailure()) return;
  }
}

TEST(StageMemory, ABudgetDoesNotDependOnWhatItsBlockIsDecidedToBe) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Stage s = random_stage(seed);
    StageMemory memory(s.setup);
    for_every_forward(memory, [&](int mb, int b) {
      const Budget first = memory.budget(mb, b);
      memory.decide(mb, b, {Bytes(7), Bytes(7), Bytes(3), Bytes(9), Bytes(2), Bytes(2)});
      const Budget second = memory.budget(mb, b);
      ASSERT_EQ(first.forward, second.forward);
      ASSERT_EQ(first.backward, second.backward);
      ASSERT_EQ(first.host, second.host);
      ASSERT_EQ(first.held, second.held);
      ASSERT_EQ(first.ready, second.ready);
    });
    if (HasFatalFailure()) return;
  }
}

// One block, F0 F1 B0 B1 with recv and grad items that need nothing; fixed 10, cap 100; the least: forward 20, held 5,
// backward 30. For F0: forward 100 - 10 = 90. Between F0 and B0's reload nothing happens: R0 comes beside F1, before it.
// held + reloaded: while F1 runs, 100 - 10 - 20 = 70. backward of B0: 10 + 5 (F1's) + b <= 100: 85.
TEST(StageMemory, BudgetsOfTheFirstOfTwoMicroBatchesByHand) {
  StageMemory memory({{{BlockKind::dense, 0, {}}},
                      one_forward_one_backward({2, 2})[0],
                      Bytes(10),
                      Bytes(100),
                      Bytes(40),
                      {{Bytes(20), Bytes(20), Bytes(5), Bytes(30), {}, {}}}});
  memory.advance();  // the input has come
  const Budget b = memory.budget(0, 0);
  EXPECT_EQ(b.forward, Bytes(90));
  EXPECT_EQ(b.ready, Bytes(70));
  EXPECT_EQ(b.backward, Bytes(85));
  EXPECT_EQ(b.host, Bytes(40));
  EXPECT_THROW(memory.budget(1, 0), InternalError) << "not next";
}

TEST(StageMemory, AfterTheGateOnlyTheRestOfTheForwardPassCounts) {
  const Budget budget{Bytes(10), Bytes(5), Bytes(6), Bytes(20), Bytes(7)};
  Footprint f{Bytes(11), Bytes(10), Bytes(5), Bytes(20), Bytes(1), Bytes(7)};
  EXPECT_FALSE(fits(f, budget));
  EXPECT_TRUE(fits_after_gate(f, budget));
  f.after_gate = Bytes(11);
  EXPECT_FALSE(fits_after_gate(f, budget));
}

/// One block, all numbers in bytes: passes take what they hold and 10 more.
StageMemory::Setup one_block(std::vector<Task> order, Bytes cap) {
  const Footprint least{Bytes(20), Bytes(20), Bytes(10), Bytes(20), {}, {}};
  return {{{BlockKind::dense, 0, {}}}, std::move(order), Bytes(0), cap, Bytes(0), {least}};
}
constexpr Footprint wanting{Bytes(60), Bytes(60), Bytes(50), Bytes(60), {}, {}};

/// In steady state Algorithm 1 gives a micro-batch all that is left, and the next one goes without.
TEST(StageMemory, SharesStayLevelInSteadyState) {
  // F0 F1 F2 B0 F3 B1 ...: beside every forward pass, which takes 60, one micro-batch that has come back as a whole, 50, and
  // one that holds its share, 10 + 40 x 1/2. The first meets no other while it is away.
  const auto held_under = [](std::int64_t cap) {
    StageMemory memory(one_block(one_forward_one_backward({3, 8})[0], Bytes(cap)));
    memory.expect({wanting});
    std::vector<std::int64_t> held;
    for_every_forward(memory, [&](int mb, int b) {
      const Bytes mine(10 + static_cast<std::int64_t>(40 * memory.level_share(wanting)));
      held.push_back(mine.value);
      memory.decide(mb, b, {mine + Bytes(10), mine + Bytes(10), mine, Bytes(60), wanting.held - mine, {}});
    });
    return held;
  };
  EXPECT_EQ(held_under(140), (std::vector<std::int64_t>{50, 30, 30, 30, 30, 30, 30, 30}));
  EXPECT_EQ(held_under(120), (std::vector<std::int64_t>{50, 10, 10, 10, 10, 10, 10, 10}));
  EXPECT_EQ(held_under(160), std::vector<std::int64_t>(8, 50));
}

TEST(StageMemory, AUnitHasRoomWhileItsPassesFitBesideEachOther) {
  const auto order = fused_units({2, 6, 1})[0];  // F0 F1 F2, then F3+B0 ...
  // Beside F3 with its 60 bytes three are held, of which B0 takes 60 instead of its 10.
  for (const auto& [cap, room] : {std::pair(140, true), std::pair(139, false)}) {
    StageMemory memory(one_block(order, Bytes(cap)));
    Footprint whole = wanting;
    whole.held = Bytes(10);
    memory.expect_at_least({whole});
    EXPECT_EQ(memory.next_unit_has_room(), room) << cap;
  }
}

}  // namespace
}  // namespace spillway
