#pragma once
// What one pipeline stage holds: its blocks in forward order, their parameters and its static memory.
#include <array>
#include <span>
#include <vector>

#include "grid/grid.hpp"
#include "workload/shape/parameters.hpp"

namespace spillway {

struct StageBlock {
  BlockKind kind;
  int layer = -1;  ///< global index of a transformer layer; -1 for embedding, head and loss
  BlockContext context;
};

/// The parts of a case that decide what a stage holds.
struct StageSetup {
  ModelShape shape;
  GridOptions grid;
  std::int64_t sequence_length = 1;
  std::int64_t micro_batch_size = 1;           ///< sequences per micro-batch and data-parallel rank
  std::vector<std::int64_t> layers_of_stages;  ///< [pipeline_parallel]
};

std::vector<StageBlock> stage_blocks(const StageSetup& setup, int stage);

/// Elements of one parameter group on a rank, padded so that every shard has the same size.
struct GroupElements {
  std::int64_t elements = 0;  ///< before padding
  std::int64_t shards = 1;    ///< ranks that share the optimizer state
  std::int64_t shard() const { return shard_elements(elements, shards); }
  std::int64_t padded() const { return shard() * shards; }
};
using RankElements = std::array<GroupElements, parameter_group_count>;
RankElements rank_elements(std::span<const StageBlock> blocks, const Grid& grid);

/// Elements that every peer sends in one piece of the gradient reduction; bounds its receive buffer.
inline constexpr std::int64_t reduction_piece = std::int64_t{1} << 18;
/// Receive buffer of the gradient reduction of one group (fp32): nothing when no rank shares it.
Bytes reduction_buffer(const GroupElements& group);

}  // namespace spillway
