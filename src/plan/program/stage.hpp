#pragma once
// What one pipeline stage holds: its blocks in forward order.
#include <span>
#include <vector>

#include "grid/grid.hpp"
#include "workload/shape/parameters.hpp"

namespace spillway {

struct StageBlock {
  BlockKind kind;
  int layer = -1;  ///< global index of a transformer layer; -1 for embedding, head and loss
  BlockContext context;
  int chunk = 0;  ///< model chunk of the stage
  /// Tensors that policies which adapt never recompute here: a tensor-parallel collective would have to bring them back,
  /// and whether it does is settled for the whole group before the first iteration (policy/together).
  TensorSet held = {};
};

/// Blocks of one chunk: blocks[first] to blocks[last].
struct ChunkBlocks {
  int first = 0, last = 0;
};
ChunkBlocks blocks_of_chunk(std::span<const StageBlock> blocks, int chunk);

/// The parts of a case that decide what a stage holds.
struct StageSetup {
  ModelShape shape;
  GridOptions grid;
  std::int64_t sequence_length = 1;
  std::int64_t micro_batch_size = 1;  ///< sequences per micro-batch and data-parallel rank
  /// [chunks x pipeline_parallel] in the order of the model: chunk c of stage r holds piece c x pipeline_parallel + r.
  std::vector<std::int64_t> layers_of_pieces;
  bool overlap_gradients = false;  ///< gradients are reduced beside the backward passes of cool-down
  int chunks() const { return static_cast<int>(layers_of_pieces.size()) / grid.pipeline_parallel; }
  std::int64_t layers_of_stage(int stage) const;
};

/// Blocks of all chunks of a stage, chunk by chunk, each in forward order.
std::vector<StageBlock> stage_blocks(const StageSetup& setup, int stage);

}  // namespace spillway
