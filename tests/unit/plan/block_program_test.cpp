// Block programs: listings written by hand, and promises that hold for every set of kept tensors.
#include "plan/program/block_program.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.hpp"
#include "one_block.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/together.hpp"

namespace spillway {
namespace {

using T = Tensor;

/// A MoE block with a shared expert on two expert ranks of four experts each.
BlockContext moe_context(std::int64_t shared = 8) {
  BlockContext c;
  c.expert_parallel = 2;
  c.mlp_size = c.shape.shared_expert_intermediate_size = shared;
  return c;
}

BlockProgram program(std::string_view policy, BlockKind kind, const BlockContext& c) {
  return compile(kind, c, decision(policy, kind, c));
}

/// Allocated before and released after an exchange of rows and their weights.
const std::string buffers =
    " +received_rows +sent_rows +slot_weight +received_weight -received_rows -sent_rows -slot_weight -received_weight";

std::string lines(std::initializer_list<std::string> list) {
  std::string text;
  for (const std::string& line : list) text += line + '\n';
  return text;
}

TEST(BlockProgram, KeepListing) {
  const BlockProgram p = program("keep", BlockKind::moe, moe_context());
  EXPECT_EQ(to_text(p.forward),
            lines({"attention_norm +attention_norm_output", "qkv +qkv", "attention_core +attention_output +log_sum_exp",
                   "out_projection +mlp_norm_input", "mlp_norm +mlp_norm_output", "router +router_state",
                   "mlp_fc1 +mlp_fc1_output", "mlp_swiglu +mlp_fc2_input", "mlp_fc2 +block_output", "gate",
                   "dispatch +fc1_input +row_weight" + buffers, "fc1 +fc1_output", "swiglu +fc2_input",
                   "fc2 +expert_output", "combine +returned_rows +received_rows -received_rows -expert_output",
                   "unpermute -returned_rows"}));
  EXPECT_EQ(to_text(p.backward),
            lines({"unpermute backward +d_returned_rows",
                   "combine backward +d_expert_output +received_rows -received_rows -d_returned_rows",
                   "fc2 backward +d_fc2_input -fc2_input -d_expert_output",
                   "swiglu backward +d_fc1_output +d_row_weight -fc1_output -d_fc2_input -row_weight",
                   "fc1 backward +d_fc1_input -fc1_input -d_fc1_output",
                   "dispatch backward +d_mlp_norm_output +d_router_weight" + buffers + " -d_fc1_input -d_row_weight",
                   "mlp_fc2 backward +d_mlp_fc2_input -mlp_fc2_input",
                   "mlp_swiglu backward +d_mlp_fc1_output -mlp_fc1_output -d_mlp_fc2_input",
                   "mlp_fc1 backward -d_mlp_fc1_output",
                   "router backward +d_router_logits -d_router_logits -mlp_norm_output -router_state -d_router_weight",
                   "mlp_norm backward -mlp_norm_input -d_mlp_norm_output",
                   "out_projection backward +d_attention_output",
                   "attention_core backward +d_qkv -qkv -attention_output -log_sum_exp -d_attention_output",
                   "qkv backward +d_attention_norm_output -attention_norm_output -d_qkv",
                   "attention_norm backward -block_input -d_attention_norm_output"}));
}

TEST(BlockProgram, SelectiveListing) {
  const BlockProgram p = program("selective", BlockKind::moe, moe_context());
  EXPECT_EQ(to_text(p.forward),
            lines({"attention_norm +attention_norm_output", "qkv +qkv -attention_norm_output",
                   "attention_core +attention_output +log_sum_exp", "out_projection +mlp_norm_input",
                   "mlp_norm +mlp_norm_output", "router +router_state", "mlp_fc1 +mlp_fc1_output",
                   "mlp_swiglu +mlp_fc2_input", "mlp_fc2 +block_output -mlp_fc2_input", "gate",
                   "dispatch +fc1_input +row_weight" + buffers + " -mlp_norm_output", "fc1 +fc1_output",
                   "swiglu +fc2_input", "fc2 +expert_output -fc2_input",
                   "combine +returned_rows +received_rows -received_rows -expert_output", "unpermute -returned_rows"}));
  EXPECT_EQ(to_text(p.backward),
            lines({"unpermute backward +d_returned_rows",
                   "combine backward +d_expert_output +received_rows -received_rows -d_returned_rows",
                   "swiglu again +fc2_input", "fc2 backward +d_fc2_input -fc2_input -d_expert_output",
                   "swiglu backward +d_fc1_output +d_row_weight -fc1_output -d_fc2_input -row_weight",
                   "fc1 backward +d_fc1_input -fc1_input -d_fc1_output",
                   "dispatch backward +d_mlp_norm_output +d_router_weight" + buffers + " -d_fc1_input -d_row_weight",
                   "mlp_swiglu again +mlp_fc2_input", "mlp_fc2 backward +d_mlp_fc2_input -mlp_fc2_input",
                   "mlp_swiglu backward +d_mlp_fc1_output -mlp_fc1_output -d_mlp_fc2_input",
                   "mlp_norm again +mlp_norm_output", "mlp_fc1 backward -d_mlp_fc1_output",
                   "router backward +d_router_logits -d_router_logits -mlp_norm_output -router_state -d_router_weight",
                   "mlp_norm backward -mlp_norm_input -d_mlp_norm_output",
                   "out_projection backward +d_attention_output",
                   "attention_core backward +d_qkv -qkv -attention_output -log_sum_exp -d_attention_output",
                   "attention_norm again +attention_norm_output",
                   "qkv backward +d_attention_norm_output -attention_norm_output -d_qkv",
                   "attention_norm backward -block_input -d_attention_norm_output"}));
}

TEST(BlockProgram, FullListing) {
  const BlockProgram p = program("full", BlockKind::moe, moe_context());
  EXPECT_EQ(to_text(p.forward),
            lines({"attention_norm +attention_norm_output", "qkv +qkv -attention_norm_output",
                   "attention_core +attention_output +log_sum_exp -qkv -log_sum_exp",
                   "out_projection +mlp_norm_input -attention_output", "mlp_norm +mlp_norm_output",
                   "router +router_state", "mlp_fc1 +mlp_fc1_output", "mlp_swiglu +mlp_fc2_input -mlp_fc1_output",
                   "mlp_fc2 +block_output -mlp_fc2_input", "gate",
                   "dispatch +fc1_input +row_weight" + buffers + " -mlp_norm_output -router_state",
                   "fc1 +fc1_output -fc1_input", "swiglu +fc2_input -fc1_output -row_weight",
                   "fc2 +expert_output -fc2_input",
                   "combine +returned_rows +received_rows -received_rows -expert_output",
                   "unpermute -returned_rows -mlp_norm_input"}));
  EXPECT_EQ(to_text(p.backward),
            lines({"unpermute backward +d_returned_rows",
                   "combine backward +d_expert_output +received_rows -received_rows -d_returned_rows",
                   "attention_norm again +attention_norm_output",
                   "qkv again +qkv",
                   "attention_core again +attention_output +log_sum_exp",
                   "out_projection again +mlp_norm_input",
                   "mlp_norm again +mlp_norm_output",
                   "router again +router_state",
                   "dispatch again +fc1_input +row_weight" + buffers,
                   "fc1 again +fc1_output",
                   "swiglu again +fc2_input",
                   "fc2 backward +d_fc2_input -fc2_input -d_expert_output",
                   "swiglu backward +d_fc1_output +d_row_weight -fc1_output -d_fc2_input -row_weight",
                   "fc1 backward +d_fc1_input -fc1_input -d_fc1_output",
                   "dispatch backward +d_mlp_norm_output +d_router_weight" + buffers + " -d_fc1_input -d_row_weight",
                   "mlp_fc1 again +mlp_fc1_output",
                   "mlp_swiglu again +mlp_fc2_input",
                   "mlp_fc2 backward +d_mlp_fc2_input -mlp_fc2_input",
                   "mlp_swiglu backward +d_mlp_fc1_output -mlp_fc1_output -d_mlp_fc2_input",
                   "mlp_fc1 backward -d_mlp_fc1_output",
                   "router backward +d_router_logits -d_router_logits -mlp_norm_output -router_state -d_router_weight",
                   "mlp_norm backward -mlp_norm_input -d_mlp_norm_output",
                   "out_projection backward +d_attention_output",
                   "attention_core backward +d_qkv -qkv -attention_output -log_sum_exp -d_attention_output",
                   "qkv backward +d_attention_norm_output -attention_norm_output -d_qkv",
                   "attention_norm backward -block_input -d_attention_norm_output"}));
}

/// Blocks of every kind in every surrounding that changes an operator table.
std::vector<std::pair<BlockKind, BlockContext>> all_blocks() {
  std::vector<std::pair<BlockKind, BlockContext>> list;
  for (const BlockKind kind :
       {BlockKind::embedding, BlockKind::synthetic_input, BlockKind::dense, BlockKind::head, BlockKind::square_loss})
    list.emplace_back(kind, moe_context());
  for (const std::int64_t shared : {0, 8})
    for (const std::int64_t expert_parallel : {1, 2, 8})
      for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine})
        for (const std::int64_t element : {2, 4}) {
          BlockContext c = moe_context(shared);
          c.expert_parallel = expert_parallel;
          c.shape.inventory = inventory;
          c.shape.bytes_per_element = element;
          list.emplace_back(BlockKind::moe, c);
        }
  return list;
}

TensorSet random_set(std::uint64_t seed) {
  TensorSet keep;
  const CounterRandom random(seed);
  const double share = random.uniform(1000);
  for (std::size_t t = 0; t < tensor_count; ++t)
    if (random.uniform(t) < share) keep.insert(static_cast<T>(t));
  return keep;
}

/// Calls visit(kind, context, keep, program) for every block with many sets: all, none, every policy's, random ones.
template <class Visit>
void for_many_programs(const Visit& visit) {
  for (const auto& [kind, context] : all_blocks()) {
    std::vector<TensorSet> sets = {TensorSet::all(), {}};
    for (const std::string& name : fixed_policies) sets.push_back(decision(name, kind, context).keep);
    for (std::uint64_t seed = 0; seed < 60; ++seed) sets.push_back(random_set(seed));
    for (const TensorSet& keep : sets) {
      SCOPED_TRACE(fmt::format("{} block, expert parallel {}, kept set {:#x}", name(kind), context.expert_parallel,
                               keep.bits()));
      visit(kind, context, keep, compile(kind, context, Mitigations{keep, {}, {}, 0}));
    }
  }
}

const Pass& pass_of(const std::vector<OperatorRow>& table, const Instruction& i) {
  const auto row = std::find_if(table.begin(), table.end(), [&](const OperatorRow& r) { return r.op == i.op; });
  return i.pass == PassKind::forward ? row->forward : row->backward;
}

/// Carries tensors through instructions: allocated once, read and written while alive, released once.
class Lives {
 public:
  void begin(T t) { ASSERT_TRUE(alive_.insert(t).second) << name(t) << " is allocated twice"; }
  void end(T t) { ASSERT_EQ(alive_.erase(t), 1u) << name(t) << " is released but not there"; }
  void run(const std::vector<Instruction>& instructions, const std::vector<OperatorRow>& table) {
    for (const Instruction& i : instructions) {
      for (const T t : i.allocate) begin(t);
      const Pass& pass = pass_of(table, i);
      for (const auto* list : {&pass.reads, &pass.writes, &pass.scratch})
        for (const T t : *list)
          ASSERT_TRUE(alive_.contains(t)) << name(i.op) << " uses " << name(t) << ", which is not there";
      for (const T t : i.release) end(t);
    }
  }
  std::vector<T> alive() const { return {alive_.begin(), alive_.end()}; }

 private:
  std::set<T> alive_;
};

std::vector<T> members(const TensorSet& set) {
  std::vector<T> list;
  for (std::size_t t = 0; t < tensor_count; ++t)
    if (set.contains(static_cast<T>(t))) list.push_back(static_cast<T>(t));
  return list;
}

TEST(BlockProgram, EveryReadIsAliveNothingLeaksAndNothingIsAllocatedOrReleasedTwice) {
  for_many_programs([](BlockKind kind, const BlockContext& context, const TensorSet&, const BlockProgram& p) {
    const auto table = operator_table(kind, context);
    const bool begins = kind == BlockKind::embedding || kind == BlockKind::synthetic_input;
    const bool ends = kind == BlockKind::head || kind == BlockKind::square_loss;
    Lives lives;
    if (!begins) lives.begin(T::block_input);
    lives.run(p.forward, table);
    std::vector<T> expected = members(p.kept);
    if (!ends) {
      lives.end(T::block_output);  // the next block's input now
      lives.begin(T::d_residual);
    }
    if (!ends) expected.push_back(T::d_residual);
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(lives.alive(), expected) << "between forward and backward";
    lives.run(p.backward, table);
    ASSERT_EQ(lives.alive(), begins ? std::vector<T>{} : std::vector<T>{T::d_residual}) << "after backward";
  });
}

TEST(BlockProgram, OnlyWhatMayStayStays) {
  for_many_programs([](BlockKind, const BlockContext&, TensorSet keep, const BlockProgram& p) {
    keep.insert(T::block_input);
    for (const T t : members(p.kept)) ASSERT_TRUE(keep.contains(t)) << name(t);
  });
}

TEST(BlockProgram, AnOperatorRunsAgainOnlyForATensorThatIsMissingAndNeeded) {
  for_many_programs([](BlockKind kind, const BlockContext& context, TensorSet keep, const BlockProgram& p) {
    const auto table = operator_table(kind, context);
    keep.insert(T::block_input);
    TensorSet there = keep;
    for (std::size_t at = 0; at < p.backward.size(); ++at) {
      const Instruction& i = p.backward[at];
      if (!i.recompute) continue;
      bool missing = false, needed = false;
      for (const T t : pass_of(table, i).writes) {
        if (there.contains(t)) continue;
        missing = true;
        there.insert(t);
        for (std::size_t later = at + 1; later < p.backward.size(); ++later) {
          const auto& reads = pass_of(table, p.backward[later]).reads;
          needed = needed || std::find(reads.begin(), reads.end(), t) != reads.end();
        }
      }
      ASSERT_TRUE(missing && needed) << name(i.op) << " is computed again for nothing";
    }
  });
}

TEST(BlockProgram, EveryBackwardRunsOnceInReverseOrder) {
  for_many_programs([](BlockKind kind, const BlockContext& context, const TensorSet&, const BlockProgram& p) {
    std::vector<Op> expected, actual;
    const auto table = operator_table(kind, context);
    for (auto row = table.rbegin(); row != table.rend(); ++row)
      if (!row->backward.reads.empty() || !row->backward.writes.empty()) expected.push_back(row->op);
    for (const Instruction& i : p.backward)
      if (!i.recompute) actual.push_back(i.op);
    ASSERT_EQ(actual, expected);
    ASSERT_EQ(p.forward.size(), table.size());
    for (std::size_t i = 0; i < table.size(); ++i) ASSERT_EQ(p.forward[i].op, table[i].op);
  });
}

TEST(BlockProgram, KeepingEverythingRecomputesNothingAndKeepsTheSavedInventory) {
  for (const auto& [kind, context] : all_blocks()) {
    const BlockProgram p = compile(kind, context, Mitigations::keep_all());
    for (const Instruction& i : p.backward) EXPECT_FALSE(i.recompute) << name(i.op);
    const ExpertRows rows{48, 3};
    Bytes kept;
    for (const T t : members(p.kept)) {
      const Category where = category(t, context);
      if (where == Category::activation_moe || where == Category::activation_other) kept += bytes(t, context, rows);
    }
    EXPECT_EQ(kept, saved_activation_bytes(kind, context, rows)) << name(kind);
  }
}

std::int64_t all_to_alls(const BlockProgram& p, const BlockContext& context) {
  const auto table = operator_table(BlockKind::moe, context);
  std::int64_t count = 0;
  for (const auto* list : {&p.forward, &p.backward})
    for (const Instruction& i : *list)
      for (const OperatorRow& row : table) count += row.op == i.op && row.collective == Collective::expert_all_to_all;
  return count;
}

TEST(BlockProgram, FullRecomputeStopsAtFc2sInputAndHolds5AllToAllsInsteadOf4) {
  const BlockContext c = moe_context();
  const BlockProgram full = program("full", BlockKind::moe, c);
  for (const Instruction& i : full.backward)
    EXPECT_FALSE(i.recompute &&
                 (i.op == Op::fc2 || i.op == Op::mlp_fc2 || i.op == Op::combine || i.op == Op::unpermute))
        << name(i.op);
  EXPECT_EQ(all_to_alls(full, c), 5);
  EXPECT_EQ(all_to_alls(program("keep", BlockKind::moe, c), c), 4);
  EXPECT_EQ(all_to_alls(program("selective", BlockKind::moe, c), c), 4);
  EXPECT_EQ(members(full.kept), std::vector<T>{T::block_input});
}

TEST(BlockProgram, WeightsAtCombineMakeFullRecomputeRepeatTheCombine) {
  BlockContext c = moe_context();
  c.shape.inventory = Inventory::with_combine;
  EXPECT_EQ(all_to_alls(program("full", BlockKind::moe, c), c), 6);
}

/// The all-to-alls of a backward pass in their order, as every member of a group must issue them.
std::string exchanges(const BlockProgram& p) {
  std::string text;
  for (const Instruction& i : p.backward)
    if (i.action == Action::run && (i.op == Op::dispatch || i.op == Op::combine))
      text += fmt::format("{}{} ", name(i.op), i.recompute ? " again" : "'");
  return text;
}

TEST(BlockProgram, ExchangesAndTheirOrderFollowFromWhatTheGroupDecidesWhateverElseARankDoes) {
  for (const auto& [kind, context] : all_blocks()) {
    if (kind != BlockKind::moe) continue;
    const std::vector<T> collective = members(collective_tensors(context));
    for (std::uint64_t given_up = 0; given_up < std::uint64_t{1} << collective.size(); ++given_up) {
      std::set<std::string> orders;
      for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Mitigations m{random_set(seed), {}, {}, 0};
        for (std::size_t i = 0; i < collective.size(); ++i)
          m.set(collective[i], (given_up >> i & 1) != 0 ? Treatment::recompute : Treatment::keep);
        orders.insert(exchanges(compile(kind, context, m)));
      }
      EXPECT_EQ(orders.size(), 1u) << *orders.begin() << "| " << *orders.rbegin();
    }
  }
}

/// Messages of a backward pass in their order: of the expert group and of the tensor-parallel group.
std::string messages(const BlockProgram& p, const StageBlock& block) {
  std::set<Op> together;
  for (const OperatorRow& row : operator_table(block.kind, block.context))
    if (row.collective == Collective::tensor_parallel) together.insert(row.op);
  std::string text;
  for (const Instruction& i : p.backward)
    if (i.action == Action::run && (i.op == Op::dispatch || i.op == Op::combine || together.contains(i.op)))
      text += fmt::format("{}{} ", name(i.op), i.recompute ? " again" : "'");
  return text;
}

TEST(BlockProgram, MessagesOfATensorParallelGroupFollowFromWhatItDecidesWhateverElseARankDoes) {
  for (auto [kind, context] : all_blocks()) {
    context.tensor_parallel = 2;
    const StageBlock block{kind, 1, context};
    const std::vector<T> together = members(tensor_parallel_tensors(block) | collective_tensors(context));
    for (std::uint64_t given_up = 0; given_up < std::uint64_t{1} << together.size(); ++given_up)
      for (const std::int64_t tiles : {0, 1}) {
        std::set<std::string> orders;
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
          Mitigations m{random_set(seed), {}, {}, kind == BlockKind::moe ? tiles : 0};
          for (std::size_t i = 0; i < together.size(); ++i)
            m.set(together[i], (given_up >> i & 1) != 0 ? Treatment::recompute : Treatment::keep);
          orders.insert(messages(compile(kind, context, {m, m, 2}), block));
        }
        EXPECT_EQ(orders.size(), 1u) << *orders.begin() << "| " << *orders.rbegin();
      }
  }
}

TEST(BlockProgram, GateFollowsTheRouterAndPrecedesTheDispatch) {
  const BlockProgram p = program("keep", BlockKind::moe, moe_context());
  ASSERT_LT(p.gate + 1, p.forward.size());
  EXPECT_EQ(p.forward[p.gate].op, Op::gate);
  EXPECT_EQ(p.forward[p.gate + 1].op, Op::dispatch);
  const BlockProgram dense = program("keep", BlockKind::dense, moe_context());
  EXPECT_EQ(dense.gate, dense.forward.size());
}

}  // namespace
}  // namespace spillway
