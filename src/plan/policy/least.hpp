#pragma once
// The least memory a block can do with.
#include "plan/program/footprint.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// Full recompute, in one dispatch or in slices: a transformer layer keeps its input alone. Embedding, head and loss keep
/// what they need: their backward pass follows at once, or needs nothing.
Mitigations least_mitigations(BlockKind kind, std::int64_t tiles_per_slice = 0);

/// Footprint of full recompute with slices of one tile, at any load that the router can cause. What a policy that adapts
/// can always fall back to.
Footprint least_footprint(const StageBlock& block, Bytes alignment);

}  // namespace spillway
