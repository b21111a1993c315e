#include "plan/program/stage.hpp"

#include <algorithm>
#include <numeric>

namespace spillway {

std::vector<StageBlock> stage_blocks(const StageSetup& setup, int stage) {
  BlockContext context;
  context.shape = setup.shape;
  context.sequence_length = setup.sequence_length;
  context.sequences = setup.micro_batch_size;
  context.tensor_parallel = setup.grid.tensor_parallel;
  context.expert_parallel = setup.grid.expert_parallel;

  std::vector<StageBlock> blocks;
  if (stage == 0) blocks.push_back({setup.shape.head ? BlockKind::embedding : BlockKind::synthetic_input, -1, context});
  const auto& layers = setup.layers_of_stages;
  const auto first = std::accumulate(layers.begin(), layers.begin() + stage, std::int64_t{0});
  for (std::int64_t layer = first; layer < first + layers[stage]; ++layer) {
    BlockContext of_layer = context;
    of_layer.mlp_size = setup.shape.mlp_size(layer);
    blocks.push_back(
        {setup.shape.is_moe_layer(layer) ? BlockKind::moe : BlockKind::dense, static_cast<int>(layer), of_layer});
  }
  if (stage == setup.grid.pipeline_parallel - 1)
    blocks.push_back({setup.shape.head ? BlockKind::head : BlockKind::square_loss, -1, context});
  return blocks;
}

RankElements rank_elements(std::span<const StageBlock> blocks, const Grid& grid) {
  RankElements all;
  all[static_cast<int>(ParameterGroup::dense)].shards = grid.data();
  all[static_cast<int>(ParameterGroup::expert)].shards = grid.expert_replicas();
  for (const StageBlock& block : blocks)
    for (const ParameterShape& p : parameters(block.kind, block.context))
      all[static_cast<int>(p.group)].elements += p.size();
  return all;
}

Bytes reduction_buffer(const GroupElements& group) {
  if (group.shards == 1 || group.elements == 0) return Bytes(0);
  return Bytes(group.shards * std::min(group.shard(), reduction_piece) * 4);
}

}  // namespace spillway
