#include "plan/policy/least.hpp"

#include <algorithm>

#include "workload/shape/slices.hpp"

namespace spillway {

Mitigations least_mitigations(BlockKind kind, std::int64_t tiles_per_slice) {
  if (kind != BlockKind::moe && kind != BlockKind::dense) return Mitigations::keep_all();
  return {{Tensor::block_input}, {}, {}, kind == BlockKind::moe ? tiles_per_slice : 0};
}

Mitigations least_mitigations(const StageBlock& block, std::int64_t tiles_per_slice) {
  Mitigations least = least_mitigations(block.kind, tiles_per_slice);
  least.keep = least.keep | block.held;
  return least;
}

BlockRows worst_slices(const BlockContext& c) {
  const std::int64_t group_tokens = c.local_tokens() * c.expert_parallel;
  const std::int64_t tiles = c.local_experts() * ((group_tokens + row_tile - 1) / row_tile);
  const std::int64_t slices = std::clamp<std::int64_t>(std::min(tiles, worst_rows(c).rows), 1, 3);
  return {{}, std::vector<ExpertRows>(static_cast<std::size_t>(slices), worst_slice(c, 1))};
}

Footprint least_footprint(const StageBlock& b, Bytes alignment) {
  const FootprintSetting setting = footprint_setting(b.kind, b.context, alignment);
  const Mitigations least = least_mitigations(b, 1);
  if (b.kind != BlockKind::moe) return footprint(compile(b.kind, b.context, least), setting, {});
  const BlockRows rows = worst_slices(b.context);
  return footprint(compile(b.kind, b.context, {least, least, static_cast<int>(rows.slices.size())}), setting, rows);
}

}  // namespace spillway
