#include "plan/step_plan.hpp"

#include <algorithm>
#include <cmath>

namespace spillway {

const BlockProgram& StepPlan::decide(int micro_batch, int block) {
  const StageBlock& b = blocks_[block];
  const Mitigations chosen = policy_->decide({b.kind, b.context, micro_batch});
  const auto key = std::make_pair(block, chosen.keep.bits());
  auto found = compiled_.find(key);
  if (found == compiled_.end()) found = compiled_.emplace(key, compile(b.kind, b.context, chosen.keep)).first;
  in_force_[{micro_batch, block}] = &found->second;
  return found->second;
}

ExpertRows balanced_rows(const BlockContext& c, double margin) {
  if (c.local_experts() == 0) return {};
  return {static_cast<std::int64_t>(std::ceil(static_cast<double>(c.routed_rows()) * margin)), c.local_experts()};
}

void add_static_memory(ByteLedger& ledger, const RankElements& elements, std::int64_t bytes_per_element) {
  for (const GroupElements& group : elements) {
    if (group.elements == 0) continue;
    const StaticBytes bytes = static_bytes(group.padded(), bytes_per_element, group.shards);
    ledger.add(Category::parameters, bytes.parameters);
    ledger.add(Category::gradients, bytes.gradients);
    // The moments are blocks of their own.
    const Bytes half(bytes.optimizer.value / 2);
    ledger.add(Category::optimizer, half);
    ledger.add(Category::optimizer, bytes.optimizer - half);
  }
}

ByteLedger forecast_memory(StepPlan& plan, std::span<const Task> order, const RankElements& elements, Bytes alignment,
                           const RowsOf& rows) {
  Books books(alignment);
  const auto blocks = plan.blocks();
  const int last = static_cast<int>(blocks.size()) - 1;
  const bool receives_input = blocks[0].kind == BlockKind::moe || blocks[0].kind == BlockKind::dense;
  const bool sends_output = blocks[last].kind == BlockKind::moe || blocks[last].kind == BlockKind::dense;
  add_static_memory(books.ledger(), elements, blocks[0].context.shape.bytes_per_element);

  for (const Task& task : order) {
    if (task.kind == Task::Kind::forward) {
      if (receives_input) books.add(Tensor::block_input, blocks[0].context, {});
      for (int b = 0; b <= last; ++b) {
        const ExpertRows n = rows(task.micro_batch, blocks[b]);
        for (const Instruction& i : plan.decide(task.micro_batch, b).forward) {
          books.open(i, blocks[b].context, n);
          books.close(i, blocks[b].context, n);
        }
      }
      if (sends_output) books.remove(Tensor::block_output, blocks[last].context, {});
    } else {
      if (sends_output) books.add(Tensor::d_residual, blocks[last].context, {});
      for (int b = last; b >= 0; --b) {
        const ExpertRows n = rows(task.micro_batch, blocks[b]);
        for (const Instruction& i : plan.program(task.micro_batch, b).backward) {
          books.open(i, blocks[b].context, n);
          books.close(i, blocks[b].context, n);
        }
      }
      if (receives_input) books.remove(Tensor::d_residual, blocks[0].context, {});
    }
  }
  for (const GroupElements& group : elements) {
    books.ledger().add(Category::communication, reduction_buffer(group));
    books.ledger().remove(Category::communication, reduction_buffer(group));
  }
  return books.ledger();
}

}  // namespace spillway
