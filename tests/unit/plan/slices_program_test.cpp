// Programs whose dispatch is done in slices, and programs decided again after the gate.
#include <gmock/gmock.h>

#include "program_fixtures.hpp"

namespace spillway {
namespace {

using T = Tensor;

std::string lines(std::initializer_list<std::string> list) {
  std::string text;
  for (const std::string& line : list) text += line + '\n';
  return text;
}

// Two slices of the least treatment on two expert ranks of four experts. Rows pass through message buffers slice by slice;
// what is on the tokens' side (returned_rows, d_returned_rows, d_sent_rows) is whole.
TEST(SlicedProgram, ListingOfTheLeastTreatmentInTwoSlices) {
  const BlockContext c = moe_block(2, 0, Inventory::lean, 4);
  const Mitigations least = least_mitigations(BlockKind::moe, 1);
  const BlockProgram p = compile(BlockKind::moe, c, {least, least, 2});
  const std::string there_and_back =
      " +received_rows +sent_rows +slot_weight +received_weight -received_rows -sent_rows -slot_weight "
      "-received_weight";
  const std::string one_way = " +received_rows +sent_rows -received_rows -sent_rows";
  EXPECT_EQ(to_text(p.forward),
            lines({"attention_norm +attention_norm_output", "qkv +qkv -attention_norm_output",
                   "attention_core +attention_output +log_sum_exp -qkv -log_sum_exp",
                   "out_projection +mlp_norm_input -attention_output", "mlp_norm +mlp_norm_output",
                   "router +router_state", "gate", "dispatch slice 0 +fc1_input +row_weight" + there_and_back,
                   "fc1 slice 0 +fc1_output -fc1_input", "swiglu slice 0 +fc2_input -fc1_output -row_weight",
                   "fc2 slice 0 +expert_output -fc2_input",
                   "combine slice 0 +returned_rows" + one_way + " -expert_output",
                   "dispatch slice 1 +fc1_input +row_weight" + there_and_back + " -mlp_norm_output -router_state",
                   "fc1 slice 1 +fc1_output -fc1_input", "swiglu slice 1 +fc2_input -fc1_output -row_weight",
                   "fc2 slice 1 +expert_output -fc2_input", "combine slice 1" + one_way + " -expert_output",
                   "unpermute +block_output -returned_rows -mlp_norm_input"}));
  EXPECT_EQ(to_text(p.backward),
            lines({"unpermute backward +d_returned_rows",
                   "combine backward slice 0 +d_expert_output" + one_way,
                   "attention_norm again +attention_norm_output",
                   "qkv again +qkv",
                   "attention_core again +attention_output +log_sum_exp",
                   "out_projection again +mlp_norm_input",
                   "mlp_norm again +mlp_norm_output",
                   "router again +router_state",
                   "dispatch again slice 0 +fc1_input +row_weight" + there_and_back,
                   "fc1 again slice 0 +fc1_output",
                   "swiglu again slice 0 +fc2_input",
                   "fc2 backward slice 0 +d_fc2_input -fc2_input -d_expert_output",
                   "swiglu backward slice 0 +d_fc1_output +d_row_weight -fc1_output -d_fc2_input -row_weight",
                   "fc1 backward slice 0 +d_fc1_input -fc1_input -d_fc1_output",
                   "dispatch backward slice 0 +d_sent_rows +d_router_weight" + there_and_back +
                       " -d_fc1_input -d_row_weight",
                   "combine backward slice 1 +d_expert_output" + one_way + " -d_returned_rows",
                   "dispatch again slice 1 +fc1_input +row_weight" + there_and_back,
                   "fc1 again slice 1 +fc1_output",
                   "swiglu again slice 1 +fc2_input",
                   "fc2 backward slice 1 +d_fc2_input -fc2_input -d_expert_output",
                   "swiglu backward slice 1 +d_fc1_output +d_row_weight -fc1_output -d_fc2_input -row_weight",
                   "fc1 backward slice 1 +d_fc1_input -fc1_input -d_fc1_output",
                   "dispatch backward slice 1" + there_and_back + " -d_fc1_input -d_row_weight",
                   "sum_slices backward +d_mlp_norm_output -d_sent_rows",
                   "router backward +d_router_logits -d_router_logits -mlp_norm_output -router_state -d_router_weight",
                   "mlp_norm backward -mlp_norm_input -d_mlp_norm_output",
                   "out_projection backward +d_attention_output",
                   "attention_core backward +d_qkv -qkv -attention_output -log_sum_exp -d_attention_output",
                   "qkv backward +d_attention_norm_output -attention_norm_output -d_qkv",
                   "attention_norm backward -block_input -d_attention_norm_output"}));
  EXPECT_EQ(members(p.kept), std::set<T>{T::block_input});
}

/// Every surrounding, 0 (the whole dispatch) to 5 slices, random treatments before the gate and others after it.
template <class Visit>
void for_many_decisions(const Visit& visit) {
  for_every_moe_block([&](const BlockContext& c) {
    for (int slices = 0; slices <= 5; ++slices)
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(::testing::Message() << slices << " slices, seed " << seed);
        const Mitigations before = seed % 4 == 0 ? Mitigations::keep_all() : random_mitigations(seed);
        Mitigations after = seed % 4 == 1 ? before : random_mitigations(1000 + seed);
        if (seed % 8 == 7) after = least_mitigations(BlockKind::moe);
        after.tiles_per_slice = slices > 0 ? 1 : 0;
        visit(c, BlockDecision(before, after, slices));
        if (::testing::Test::HasFatalFailure()) return;
      }
  });
}

TEST(SlicedProgram, EveryReadIsAliveNothingLeaksAndEverythingComesBackOnce) {
  for_many_decisions([](const BlockContext& c, const BlockDecision& d) {
    const BlockProgram p = compile(BlockKind::moe, c, d);
    Lives lives(operator_table(BlockKind::moe, c, d.slices > 0));
    lives.begin(T::block_input);
    lives.run(p.forward);
    lives.end(T::block_output);  // the next block's input now
    ASSERT_EQ(lives.device, members(p.kept)) << "between forward and backward";
    ASSERT_EQ(lives.host, members(p.offloaded));
    ASSERT_EQ(lives.small, members(p.quantized));
    lives.begin(T::d_residual);
    lives.run(p.reloads);
    lives.run(p.backward);
    ASSERT_EQ(lives.device, std::set<T>{T::d_residual}) << "after backward";
    ASSERT_TRUE(lives.host.empty() && lives.small.empty());
  });
}

TEST(SlicedProgram, SavesNothingOnTheExpertsSide) {
  for_many_decisions([](const BlockContext& c, const BlockDecision& d) {
    if (d.slices == 0) return;
    const BlockProgram p = compile(BlockKind::moe, c, d);
    for (const T t : members(p.kept | p.offloaded | p.quantized)) ASSERT_FALSE(lives_in_slices(t)) << name(t);
  });
}

TEST(SlicedProgram, EverySliceIsComputedAgainAndCarriedBackwardBeforeTheNext) {
  for_many_decisions([](const BlockContext& c, const BlockDecision& d) {
    if (d.slices == 0) return;
    const BlockProgram p = compile(BlockKind::moe, c, d);
    std::vector<int> backward, fc1_again;
    int recomputed = -1, current = 0;
    for (const Instruction& i : p.backward) {
      if (!runs_in_slices(i.op) || i.action != Action::run) continue;
      ASSERT_TRUE(i.slice >= 0 && i.slice < d.slices);
      if (i.recompute) {
        if (i.op == Op::fc1) fc1_again.push_back(recomputed = i.slice);
        continue;
      }
      ASSERT_GE(i.slice, current) << "descends";
      current = i.slice;
      if (i.op == Op::fc2) {
        ASSERT_EQ(recomputed, i.slice) << "fc2 goes backward with another slice's rows";
      }
      if (i.op == Op::dispatch) backward.push_back(i.slice);
    }
    std::vector<int> ascending(static_cast<std::size_t>(d.slices));
    for (int j = 0; j < d.slices; ++j) ascending[static_cast<std::size_t>(j)] = j;
    ASSERT_EQ(backward, ascending);
    // Once for each; before it once more where the rows that all slices return are needed first.
    if (fc1_again.size() > ascending.size()) {
      ASSERT_TRUE(c.weights_at_combine());
      fc1_again.erase(fc1_again.begin(), fc1_again.begin() + d.slices);
    }
    ASSERT_EQ(fc1_again, ascending);
  });
}

TEST(DecisionAfterTheGate, LeavesTheInstructionsUpToTheGateAsTheyWere) {
  for_many_decisions([](const BlockContext& c, const BlockDecision& d) {
    const BlockProgram first = compile(BlockKind::moe, c, d.before), p = compile(BlockKind::moe, c, d);
    if (d.before == d.after) return;
    ASSERT_EQ(p.gate, first.gate);
    const auto up_to_gate = [](const BlockProgram& program) {
      return to_text(
          {program.forward.begin(), program.forward.begin() + static_cast<std::ptrdiff_t>(program.gate) + 1});
    };
    ASSERT_EQ(up_to_gate(p), up_to_gate(first));
  });
}

TEST(DecisionAfterTheGate, WhatWasGivenUpBeforeItStaysSo) {
  for_many_decisions([](const BlockContext& c, const BlockDecision& d) {
    const BlockProgram first = compile(BlockKind::moe, c, d.before), p = compile(BlockKind::moe, c, d);
    for (const T t : members(settled_at_gate(BlockKind::moe, c))) {
      if (first.kept.contains(t)) continue;
      ASSERT_FALSE(p.kept.contains(t)) << name(t) << " has come back";
      ASSERT_EQ(first.offloaded.contains(t), p.offloaded.contains(t)) << name(t);
      ASSERT_EQ(first.quantized.contains(t), p.quantized.contains(t)) << name(t);
    }
  });
}

TEST(DecisionAfterTheGate, SettledIsWhatTheExpertsSideDoesNotTouch) {
  const TensorSet settled = settled_at_gate(BlockKind::moe, moe_block(2, 8, Inventory::lean));
  EXPECT_EQ(members(settled), (std::set<T>{T::block_input, T::attention_norm_output, T::qkv, T::attention_output,
                                           T::log_sum_exp, T::mlp_fc1_output, T::mlp_fc2_input}));
  EXPECT_TRUE(settled_at_gate(BlockKind::dense, moe_block(2, 8, Inventory::lean)).empty());
}

}  // namespace
}  // namespace spillway
