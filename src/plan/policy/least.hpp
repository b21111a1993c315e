#pragma once
// The least memory a block can do with.
#include "plan/program/footprint.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// Full recompute, in one dispatch or in slices: a transformer layer keeps its input alone. Embedding, head and loss keep
/// what they need: their backward pass follows at once, or needs nothing.
Mitigations least_mitigations(BlockKind kind, std::int64_t tiles_per_slice = 0);

/// The same, but a block keeps what it holds for its tensor-parallel group.
Mitigations least_mitigations(const StageBlock& block, std::int64_t tiles_per_slice = 0);

/// Rows of a dispatch in slices of one tile at the worst load: a first slice, one between and a last one, for what the
/// first brings to life and what the last lets go are both there in between, and further slices meet the same. Fewer
/// where no load has as many.
BlockRows worst_slices(const BlockContext& context);

/// Footprint of full recompute with slices of one tile, at any load that the router can cause. What a policy that adapts
/// can always fall back to.
Footprint least_footprint(const StageBlock& block, Bytes alignment);

}  // namespace spillway
