// What an expert group decides together follows from the gate table and the offers, for the most constrained member.
#include "plan/policy/group_choice.hpp"

#include "planning_fixtures.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

/// An expert group at a gate.
struct Group {
  explicit Group(std::int64_t expert_parallel, std::uint64_t seed = 1)
      : block{BlockKind::moe, 0, moe_block(expert_parallel, 8, Inventory::lean, 4)} {
    block.context.sequence_length = 700;  // up to 1400 rows an expert: several tiles
    set_table(random_table(block.context, seed));
    offers.assign(static_cast<std::size_t>(expert_parallel), Offer{unlimited(), {}, {}});
  }

  void set_table(GateTable t) {
    table = std::move(t);
    received = rows_of_members(table);
  }
  Situation at(int member) const {
    Situation s{block, 0, 0, 0, books, {}, Bytes(256), machine, history, nullptr, nullptr, {}, 0, {}};
    s.before = &before;
    s.table = &table;
    s.offers = offers;
    s.member = member;
    s.received = received;
    dispatch = std::make_shared<DispatchRows>(table);
    s.dispatch = dispatch.get();
    return s;
  }
  GroupChoice choose(int member = 0) const { return GroupChooser().choose(at(member)); }

  Footprint footprint_of(std::size_t member, const GroupChoice& choice, bool offloads) const {
    const BlockRows rows = rows_of_member(table, static_cast<std::int64_t>(member), choice.tiles_per_slice);
    const BlockDecision d(Mitigations::keep_all(), least_under(choice, block.context, offloads),
                          static_cast<int>(rows.slices.size()));
    return footprint(compile(BlockKind::moe, block.context, d),
                     footprint_setting(BlockKind::moe, block.context, Bytes(256)), rows);
  }
  bool all_fit(const GroupChoice& choice) const {
    for (std::size_t m = 0; m < offers.size(); ++m)
      if (!fits_after_gate(footprint_of(m, choice, false), offers[m].budget) &&
          (choice.dispatch_again || !fits_after_gate(footprint_of(m, choice, true), offers[m].budget)))
        return false;
    return true;
  }
  std::int64_t most_tiles() const {
    std::int64_t most = 1;
    for (std::int64_t m = 0; m < table.members; ++m) most = std::max(most, tiles(table, m));
    return most;
  }

  StageBlock block;
  StageMemory books{{{{BlockKind::dense, 0, {}}}, {{Task::Kind::forward, 0}}, {}, {}, {}, {Footprint{}}}};
  MachineProfile machine;
  LoadHistory history{1};
  Mitigations before = Mitigations::keep_all();
  GateTable table;
  std::vector<ExpertRows> received;                ///< [members]
  mutable std::shared_ptr<DispatchRows> dispatch;  ///< of the last situation
  std::vector<Offer> offers;
};

TEST(GroupChoice, WithRoomNothingIsDispatchedAgain) { EXPECT_EQ(Group(4).choose(), (GroupChoice{false, 0})); }

// What only a collective brings back stays where it is, goes to the host tier, is dispatched again, comes in slices.
TEST(GroupChoice, TakesTheFewestCollectivesThatFit) {
  Group group(2);
  const Footprint stays = group.footprint_of(1, {false, 0}, false), again = group.footprint_of(1, {true, 0}, false);
  ASSERT_LT(again.held, stays.held);
  Budget& budget = group.offers[1].budget;
  budget.held = stays.held;
  EXPECT_EQ(group.choose(), (GroupChoice{false, 0}));
  budget.held = stays.held - Bytes(1);
  EXPECT_EQ(group.choose(), (GroupChoice{false, 0})) << "in the host tier";
  budget.host = group.footprint_of(1, {false, 0}, true).host - Bytes(1);
  EXPECT_EQ(group.choose(), (GroupChoice{true, 0}));
  budget.host = plenty;
  group.machine.shared_memory = true;
  EXPECT_EQ(group.choose(), (GroupChoice{true, 0})) << "a host tier that is device memory is no help";
  budget.backward = again.backward - Bytes(1);
  const GroupChoice sliced = group.choose();
  EXPECT_TRUE(sliced.dispatch_again);
  EXPECT_GT(sliced.tiles_per_slice, 1);
  EXPECT_TRUE(group.all_fit(sliced));
}

TEST(GroupChoice, SlicesShrinkWithTheBudgetDownToOneTile) {
  for (const std::int64_t expert_parallel : {2, 4}) {
    Group group(expert_parallel);
    const Footprint whole = group.footprint_of(0, {true, 0}, false);
    const Footprint least = least_footprint(group.block, Bytes(256));
    const auto slices = [&](const GroupChoice& c) {
      return c.tiles_per_slice == 0 ? 0 : slice_count(group.table, c.tiles_per_slice);
    };
    std::int64_t last = 0;
    for (int step = 0; step <= 40; ++step) {
      const Bytes limit(whole.backward.value - step * (whole.backward.value - least.backward.value) / 40);
      for (Offer& o : group.offers) o.budget.backward = limit;
      const GroupChoice choice = group.choose();
      ASSERT_GE(slices(choice), last);
      last = slices(choice);
      if (choice.tiles_per_slice != 1) {
        ASSERT_TRUE(group.all_fit(choice));
      }
      // The number of slices grows by half from try to try, so it is less than twice the fewest that fit.
      std::int64_t fewest = choice.tiles_per_slice;
      while (fewest > 0 && fewest < group.most_tiles() && group.all_fit({true, fewest + 1})) ++fewest;
      if (choice.tiles_per_slice > 0) {
        ASSERT_LT(last, 2 * slices({true, fewest}) + 1);
      }
    }
    for (Offer& o : group.offers) o.budget = {least.forward, least.held, least.held, least.backward, Bytes(0)};
    EXPECT_EQ(group.choose(), (GroupChoice{true, 1}));
    EXPECT_TRUE(group.all_fit({true, 1})) << "the least fits at any load";
  }
}

/// One limit of one member at random, from the least to more than the whole dispatch takes.
void constrain(Group& group, std::uint64_t seed) {
  const CounterRandom random(seed, 5);
  const std::size_t member = random.below(0, group.offers.size());
  const Footprint least = least_footprint(group.block, Bytes(256)), whole = group.footprint_of(member, {}, false);
  const auto between = [&](Bytes low, Bytes high) {
    return low + Bytes(static_cast<std::int64_t>(random.uniform(1) * 1.3 * static_cast<double>((high - low).value)));
  };
  Budget& b = group.offers[member].budget;
  if (seed % 3 == 0) b.forward = between(least.forward, whole.forward);
  if (seed % 3 == 1) b.backward = between(least.backward, whole.backward);
  if (seed % 3 == 2) {
    b.held = b.ready = between(least.held, whole.held);
    b.host = between(Bytes(0), whole.held);
  }
}

TEST(GroupChoice, EveryMemberFindsTheSameWhateverElseItKnows) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Group group(4, seed);
    constrain(group, seed);
    const GroupChoice first = group.choose();
    GroupChooser with_a_past;
    with_a_past.choose(Group(4, seed + 1).at(0));
    for (int member = 0; member < 4; ++member) {
      group.before = random_mitigations(seed + static_cast<std::uint64_t>(member));
      group.history.observe(0, {member, 1, {}});
      Situation s = group.at(member);
      s.micro_batch = member;
      s.budget = {Bytes(member), Bytes(member), Bytes(member), Bytes(member), Bytes(member)};
      ASSERT_EQ(with_a_past.choose(s), first) << "seed " << seed << ", member " << member;
    }
  }
}

/// The same group with its members, their experts and their offers in reverse order.
Group reversed(const Group& group) {
  Group other = group;
  const std::int64_t members = group.table.members, local = group.table.local_experts();
  for (std::int64_t source = 0; source < members; ++source)
    for (std::int64_t e = 0; e < group.table.experts; ++e) {
      const std::int64_t owner = e / local;
      other.table.rows[static_cast<std::size_t>((members - 1 - source) * group.table.experts +
                                                (members - 1 - owner) * local + e % local)] = group.table.of(source, e);
    }
  other.set_table(other.table);
  std::reverse(other.offers.begin(), other.offers.end());
  return other;
}

TEST(GroupChoice, DoesNotDependOnTheOrderOfTheMembers) {
  std::array<int, 3> found{};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Group group(4, seed);
    constrain(group, seed);
    const GroupChoice choice = group.choose();
    ++found[choice.tiles_per_slice > 0 ? 2 : choice.dispatch_again ? 1 : 0];
    // A slice holds other sources' rows when the sources are in another order, hence slices may be cut otherwise.
    if (choice.tiles_per_slice == 0) {
      ASSERT_EQ(reversed(group).choose(), choice) << "seed " << seed;
    }
  }
  for (const int n : found) EXPECT_GT(n, 0);
}

TEST(GroupChoice, TheMostConstrainedMemberDecides) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Group group(2, seed);
    const GroupChoice free = group.choose(), tight{true, 1};
    const Footprint least = least_footprint(group.block, Bytes(256));
    for (const std::size_t constrained : {0u, 1u}) {
      for (Offer& o : group.offers) o.budget = unlimited();
      EXPECT_EQ(group.choose(), free);
      Budget& b = group.offers[constrained].budget;
      b.held = b.ready = group.footprint_of(constrained, {false, 0}, false).held - Bytes(1);
      EXPECT_TRUE(group.choose().dispatch_again) << "seed " << seed;
      b = {least.forward, least.held, least.held, least.backward, Bytes(0)};
      // A member without tiles of its own can do with less.
      if (tiles(group.table, static_cast<std::int64_t>(constrained)) == group.most_tiles()) {
        EXPECT_EQ(group.choose(), tight) << "seed " << seed;
      }
    }
  }
}

TEST(GroupChoice, LeastUnderAChoiceKeepsWhatTheChoiceForbidsToDispatchAgain) {
  for (const Inventory inventory : {Inventory::lean, Inventory::with_combine}) {
    const BlockContext c = moe_block(2, 0, inventory);
    const TensorSet collective = collective_tensors(c);
    EXPECT_EQ(least_under({true, 3}, c, false), least_mitigations(BlockKind::moe, 3));
    EXPECT_EQ(members(least_under({false, 0}, c, false).keep), members(collective | TensorSet{Tensor::block_input}));
    EXPECT_EQ(members(least_under({false, 0}, c, true).offload), members(collective));
    // Nothing is dispatched again then.
    const BlockProgram p = compile(BlockKind::moe, c, least_under({false, 0}, c, false));
    for (const Instruction& i : p.backward)
      EXPECT_FALSE(i.recompute && (i.op == Op::dispatch || i.op == Op::combine)) << name(i.op);
  }
}

}  // namespace
}  // namespace spillway
