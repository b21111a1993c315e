// A forward and a backward pass side by side on tensor-parallel ranks: whatever each member keeps, and whatever the expert
// groups of members that are in different ones decide, the messages of the tensor-parallel group come in one order. So do
// the exchanges of an expert group, which a rank repeats at places that depend on what else it recomputes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/fused_window.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/together.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

/// A pass of a member: what it keeps is drawn by `member`, what its groups decide by `together` and `expert_group`.
Mitigations drawn(const StageBlock& block, std::uint64_t member, std::uint64_t together, std::uint64_t expert_group) {
  Mitigations m = random_mitigations(member);
  const auto draw = [&m](const TensorSet& shared, std::uint64_t seed) {
    const CounterRandom random(seed, 77);
    for (std::size_t i = 0; i < tensor_count; ++i)
      if (shared.contains(static_cast<Tensor>(i)))
        m.set(static_cast<Tensor>(i), random.below(i, 2) == 0 ? Treatment::keep : Treatment::recompute);
  };
  draw(tensor_parallel_tensors(block), together);
  draw(collective_tensors(block.context), expert_group);
  m.tiles_per_slice = static_cast<std::int64_t>(expert_group % 3);
  return m;
}

std::string messages(const StageBlock& block, const BlockProgram& forward, const BlockProgram& backward) {
  std::set<Op> together;
  for (const OperatorRow& row : operator_table(block.kind, block.context))
    if (row.collective == Collective::tensor_parallel) together.insert(row.op);
  const bool one_expert_group = block.context.expert_parallel % block.context.tensor_parallel == 0;
  std::string text;
  const auto f = parts_of(forward.forward, block.context), b = parts_of(backward.backward, block.context);
  const ExpertRows rows{block.context.routed_rows(), block.context.local_experts(), {}};
  auto next_f = f.begin(), next_b = b.begin();
  WindowPlanner planner({block}, {});
  for (const bool back : planner.issue_order({f, 0, 0, rows}, {b, 0, 0, rows})) {
    const IssuedPart& part = back ? *next_b++ : *next_f++;
    const Instruction& i = *part.instruction;
    const bool exchange = one_expert_group && part.part == Part::begin;
    if (i.action == Action::run && (exchange || together.contains(i.op)))
      text += fmt::format("{}{}{} ", name(i.op), back ? "'" : "", i.recompute ? " again" : "");
  }
  EXPECT_TRUE(next_f == f.end() && next_b == b.end());
  return text;
}

TEST(TensorParallelWindow, MessagesOfAGroupComeInOneOrder) {
  for (const auto& [expert_parallel, tensor_parallel] : {std::pair{2, 2}, {4, 2}, {4, 4}, {1, 2}, {2, 4}})
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      BlockContext c = moe_block(expert_parallel, 8, Inventory::lean);
      c.tensor_parallel = tensor_parallel;
      const StageBlock block{BlockKind::moe, 1, c};
      const bool one_expert_group = expert_parallel % tensor_parallel == 0;
      std::set<std::string> orders;
      for (std::uint64_t member = 0; member < 6; ++member) {
        const std::uint64_t expert_group = mix(seed, one_expert_group ? 0 : member);
        const Mitigations f = drawn(block, mix(seed, member, 1), mix(seed, 3), expert_group);
        const Mitigations b = drawn(block, mix(seed, member, 2), mix(seed, 4), expert_group);
        const int slices = 1 + static_cast<int>(expert_group % 5);
        orders.insert(messages(block, compile(block.kind, c, {f, f, slices}), compile(block.kind, c, {b, b, slices})));
      }
      EXPECT_EQ(orders.size(), 1u) << "expert parallel " << expert_parallel << ", tensor parallel " << tensor_parallel
                                   << "\n"
                                   << *orders.begin() << "\n"
                                   << *orders.rbegin();
    }
}

}  // namespace
}  // namespace spillway
