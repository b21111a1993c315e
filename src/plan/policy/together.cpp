#include "plan/policy/together.hpp"

#include <algorithm>

namespace spillway {

TensorSet tensor_parallel_tensors(const StageBlock& block) {
  if (block.context.tensor_parallel == 1) return {};
  if (block.kind == BlockKind::head) return {Tensor::logits_gradient};
  if (block.kind != BlockKind::dense && block.kind != BlockKind::moe) return {};
  TensorSet set{Tensor::qkv, Tensor::mlp_norm_input};
  if (block.context.mlp_size > 0) set.insert(Tensor::mlp_fc1_output);
  return set;
}

void hold_all(std::span<StageBlock> blocks) {
  for (StageBlock& block : blocks)
    if (block.kind != BlockKind::head) block.held = tensor_parallel_tensors(block);
}

bool give_up_next(std::span<StageBlock> blocks) {
  const auto next = std::ranges::find_if(blocks, [](const StageBlock& block) { return !block.held.empty(); });
  if (next == blocks.end()) return false;
  next->held = {};
  return true;
}

Mitigations keep_all(const StageBlock& block) {
  Mitigations all = Mitigations::keep_all();
  if (block.kind != BlockKind::head) all.keep = all.keep - (tensor_parallel_tensors(block) - block.held);
  return all;
}

}  // namespace spillway
