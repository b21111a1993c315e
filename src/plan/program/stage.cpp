#include "plan/program/stage.hpp"

#include <algorithm>
#include <numeric>

namespace spillway {

ChunkBlocks blocks_of_chunk(std::span<const StageBlock> blocks, int chunk) {
  const auto of_chunk = [chunk](const StageBlock& b) { return b.chunk == chunk; };
  const auto first = std::find_if(blocks.begin(), blocks.end(), of_chunk);
  const auto end = std::find_if_not(first, blocks.end(), of_chunk);
  return {static_cast<int>(first - blocks.begin()), static_cast<int>(end - blocks.begin()) - 1};
}

std::int64_t StageSetup::layers_of_stage(int stage) const {
  std::int64_t sum = 0;
  for (std::size_t piece = static_cast<std::size_t>(stage); piece < layers_of_pieces.size();
       piece += static_cast<std::size_t>(grid.pipeline_parallel))
    sum += layers_of_pieces[piece];
  return sum;
}

std::vector<StageBlock> stage_blocks(const StageSetup& setup, int stage) {
  BlockContext context;
  context.shape = setup.shape;
  context.sequence_length = setup.sequence_length;
  context.sequences = setup.micro_batch_size;
  context.tensor_parallel = setup.grid.tensor_parallel;
  context.expert_parallel = setup.grid.expert_parallel;

  std::vector<StageBlock> blocks;
  const auto& layers = setup.layers_of_pieces;
  const int pieces = static_cast<int>(layers.size());
  for (int chunk = 0; chunk < setup.chunks(); ++chunk) {
    const int piece = chunk * setup.grid.pipeline_parallel + stage;
    if (piece == 0)
      blocks.push_back({setup.shape.head ? BlockKind::embedding : BlockKind::synthetic_input, -1, context, chunk});
    const auto first = std::accumulate(layers.begin(), layers.begin() + piece, std::int64_t{0});
    for (std::int64_t layer = first; layer < first + layers[piece]; ++layer) {
      BlockContext of_layer = context;
      of_layer.mlp_size = setup.shape.mlp_size(layer);
      const BlockKind kind = setup.shape.is_moe_layer(layer) ? BlockKind::moe : BlockKind::dense;
      blocks.push_back({kind, static_cast<int>(layer), of_layer, chunk});
    }
    if (piece == pieces - 1)
      blocks.push_back({setup.shape.head ? BlockKind::head : BlockKind::square_loss, -1, context, chunk});
  }
  return blocks;
}

}  // namespace spillway
