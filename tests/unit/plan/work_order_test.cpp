// The order of work of a stage with fused units: everything once, halves in their order, exchanges alike on a group, never
// more memory than foreseen, and plain order in uneven iterations.
#include "plan/work_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/schedule/fused_units.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

/// The first of two stages: three MoE blocks, six micro-batches.
StepPlan::Setup fused_stage(bool may_take_in_turn, Bytes cap = plenty) {
  const BlockContext c = moe_block(4, 8, Inventory::standard);
  std::vector<StageBlock> blocks;
  for (int layer = 0; layer < 3; ++layer) blocks.push_back({BlockKind::moe, layer, c});
  StepPlan::Setup setup = stage_of(blocks, fused_units({2, 6, 1})[0], cap);
  setup.may_take_in_turn = may_take_in_turn;
  setup.machine.launch = Seconds(1e-9);  // seconds follow from the rows
  setup.machine.peak_flops = 1e11;
  return setup;
}

/// Carries an iteration out with loads by chance; calls visit(step) for every step.
template <class Visit>
void carry_out(StepPlan& plan, std::uint64_t seed, const Visit& visit) {
  WorkOrder order(plan);
  for (order.begin_iteration(0); !order.finished(); order.advance()) {
    const WorkStep step = order.current();
    visit(step);
    const auto [mb, b] = std::pair(step.item.micro_batch, step.item.block);
    if (!step.is_gate) continue;
    const GateTable table = random_table(plan.blocks()[static_cast<std::size_t>(b)].context, mix(seed, mb, b));
    const std::vector<Offer> offers(static_cast<std::size_t>(table.members), plan.offer(mb, b));
    order.gate({table, offers, 0});
  }
}

std::string exchanges(std::string_view policy, std::uint64_t seed) {
  const auto chosen = make_policy(policy);
  StepPlan plan(fused_stage(false), *chosen);
  std::string text;
  carry_out(plan, seed, [&](const WorkStep& s) {
    if (s.part == Part::begin || s.is_gate)
      text += fmt::format("{}{}{}.{} ", name(*s.instruction), s.item.kind == Item::Kind::backward ? "'" : "",
                          s.item.micro_batch, s.item.block);
  });
  return text;
}

/// The places for reductions of every backward pass, and where a pass is the last of its block, by the messages around
/// them.
std::string reductions(std::string_view policy, std::uint64_t seed) {
  const auto chosen = make_policy(policy);
  StepPlan plan(fused_stage(1e6), *chosen);
  std::string text;
  carry_out(plan, seed, [&](const WorkStep& s) {
    if (s.hides_reductions) text += fmt::format("[{:.3g}] ", s.hides_reductions->value);
    if (s.instruction == nullptr || s.item.kind != Item::Kind::backward) return;
    const Instruction& i = *s.instruction;
    if (i.action == Action::run && !i.recompute && i.slice <= 0 && (i.op == Op::combine || i.op == Op::dispatch))
      text += fmt::format("{}{}.{} ", name(i.op), s.item.micro_batch, s.item.block);
    if (s.gradients_final) text += fmt::format("final{} ", s.item.block);
  });
  return text;
}

TEST(Reductions, HavePlacesBetweenTheSameMessagesWhateverARankDoes) {
  const std::string expected = reductions("keep", 1);
  // The last of six micro-batches goes backward after all units: its blocks' gradients are final, last block first.
  EXPECT_TRUE(
      expected.ends_with("combine5.2 [1.52e-05] dispatch5.2 [2.48e-05] final2 "
                         "combine5.1 [1.52e-05] dispatch5.1 [2.48e-05] final1 "
                         "combine5.0 [1.52e-05] dispatch5.0 [2.48e-05] final0 "))
      << expected;
  EXPECT_EQ(expected.find("final"), expected.find("final2"));
  for (const char* policy : {"full", "selective", "unified"}) EXPECT_EQ(reductions(policy, 2), expected) << policy;
}

TEST(WorkOrder, EveryInstructionOnceAndAPassInItsOrder) {
  for (const char* policy : {"keep", "full", "flexible"}) {
    const auto chosen = make_policy(policy);
    StepPlan plan(fused_stage(false), *chosen);
    std::map<std::tuple<int, int, Item::Kind>, std::vector<const Instruction*>> begun, ended;
    bool in_turns = false;
    Item last{};
    carry_out(plan, 1, [&](const WorkStep& s) {
      if (s.instruction == nullptr) return;
      in_turns |= last.kind == Item::Kind::backward && s.item.kind == Item::Kind::forward && !s.first;
      last = s.item;
      const auto key = std::tuple(s.item.micro_batch, s.item.block, s.item.kind);
      if (s.part != Part::end) begun[key].push_back(s.instruction);
      if (s.part != Part::begin) ended[key].push_back(s.instruction);
    });
    EXPECT_TRUE(in_turns) << policy;
    EXPECT_EQ(begun.size(), ended.size());
    for (int mb = 0; mb < 6; ++mb)
      for (int b = 0; b < 3; ++b)
        for (const Item::Kind kind : {Item::Kind::forward, Item::Kind::backward}) {
          const BlockProgram& program = plan.program(mb, b);
          const auto& list = kind == Item::Kind::forward ? program.forward : program.backward;
          const auto& seen = ended[{mb, b, kind}];
          ASSERT_EQ(seen.size(), list.size()) << policy << ", micro-batch " << mb << ", block " << b;
          for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(seen[i]->op, list[i].op);
          EXPECT_EQ(begun[std::tuple(mb, b, kind)], seen) << "an exchange ends before it begins";
        }
  }
}

/// Ranks of a group see the same loads and may treat local tensors differently.
TEST(WorkOrder, ExchangesComeInOneOrderWhateverARankRecomputes) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    orders.insert(exchanges("keep", seed));
    EXPECT_TRUE(orders.contains(exchanges("selective", seed))) << "seed " << seed;
  }
  EXPECT_GT(orders.size(), 1u) << "the order follows the load, or this shows nothing";
}

TEST(WorkOrder, StaysWithinTheForecastOfItsStage) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto probe = make_policy("flexible");
    const Bytes least = StepPlan(fused_stage(false), *probe).memory().forecast();
    const auto chosen = make_policy("flexible");
    StepPlan plan(fused_stage(false, least + Bytes(static_cast<std::int64_t>(seed) * 1000)), *chosen);
    Books books(Bytes(1));
    add_static_memory(books.ledger(), plan.elements(), plan.blocks()[0].context.shape.bytes_per_element);
    carry_out(plan, seed, [&](const WorkStep& s) {
      const BlockContext& c = plan.blocks()[static_cast<std::size_t>(s.item.block)].context;
      if (s.instruction == nullptr) return books.message(s.item.kind, c);
      const ExpertRows& rows = plan.rows(s.item.micro_batch, s.item.block).of(*s.instruction);
      if (s.part != Part::end) {
        for (const Tensor t : s.instruction->allocate) books.add(t, c, rows);
      }
      if (s.part == Part::begin) return;
      Instruction rest = *s.instruction;
      rest.allocate = {};
      books.open(rest, c, rows);
      books.close(rest, c, rows);
    });
    EXPECT_LE(books.ledger().peak(), plan.limits().cap) << "seed " << seed;
  }
}

/// Passes of an iteration in which another member of the group votes for units in turn at the gates of `voting`.
std::string passes(StepPlan& plan, int voting) {
  std::string text;
  WorkOrder order(plan);
  for (order.begin_iteration(0); !order.finished(); order.advance()) {
    const WorkStep s = order.current();
    const auto [mb, b] = std::pair(s.item.micro_batch, s.item.block);
    if (s.instruction != nullptr && s.first && s.item.kind != Item::Kind::reload &&
        b == (s.item.kind == Item::Kind::backward ? 2 : 0))
      text += fmt::format("{}{}{} ", s.item.kind == Item::Kind::forward ? 'F' : 'B', mb, s.item.beside_next ? "+" : "");
    if (!s.is_gate) continue;
    const GateTable table = random_table(plan.blocks()[static_cast<std::size_t>(b)].context, 3);
    std::vector<Offer> offers(static_cast<std::size_t>(table.members), plan.offer(mb, b));
    offers.back().in_turn = mb == voting;
    order.gate({table, offers, 0});
  }
  return text;
}

TEST(WorkOrder, OneMemberWithoutRoomTakesTheNextUnitInTurnForAll) {
  const std::string side_by_side = "F0 F1 F2 B0 F3+ B1 F4+ B2 F5+ B3 B4 B5 ";
  for (const auto& [voting, expected] :
       {std::pair(-1, side_by_side), std::pair(2, std::string("F0 F1 F2 B0 F3 B1 F4+ B2 F5+ B3 B4 B5 ")),
        std::pair(3, std::string("F0 F1 F2 B0 F3+ B1 F4 B2 F5+ B3 B4 B5 "))}) {
    const auto chosen = make_policy("keep");
    StepPlan plan(fused_stage(true), *chosen);
    EXPECT_EQ(passes(plan, voting), expected) << "votes at micro-batch " << voting;
    EXPECT_EQ(passes(plan, -1), side_by_side) << "the next iteration begins anew";
  }
}

TEST(WorkOrder, AMemberVotesForUnitsInTurnWhereTheyHaveNoRoom) {
  const auto probe = make_policy("flexible");
  const Bytes least = StepPlan(fused_stage(true), *probe).least();
  const auto votes = [](bool may_take_in_turn, Bytes cap) {
    int count = 0;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const auto chosen = make_policy("flexible");
      StepPlan plan(fused_stage(may_take_in_turn, cap), *chosen);
      carry_out(plan, seed, [&](const WorkStep& s) {
        if (s.is_gate && plan.offer(s.item.micro_batch, s.item.block).in_turn) ++count;
      });
    }
    return count;
  };
  EXPECT_EQ(votes(true, plenty), 0);
  EXPECT_GT(votes(true, least), 0);
  EXPECT_EQ(votes(false, least), 0);
}

/// Forecasts once took units in turn, and iterations that fuse them did not fit what was foreseen.
TEST(ForecastMemory, FusesAllUnitsWhateverTheLoad) {
  const RowsOf uneven = [](int, const StageBlock& b) { return balanced_rows(b.context, 1.5); };
  const auto peak = [&](bool may_take_in_turn) {
    const auto probe = make_policy("flexible");
    const Bytes least = StepPlan(fused_stage(false), *probe).least();
    const auto chosen = make_policy("flexible");
    StepPlan plan(fused_stage(may_take_in_turn, least), *chosen);
    forecast_memory(plan, uneven);
    return plan.memory().forecast();
  };
  EXPECT_EQ(peak(true), peak(false));
}

}  // namespace
}  // namespace spillway
