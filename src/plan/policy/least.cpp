#include "plan/policy/least.hpp"

#include "workload/shape/slices.hpp"

namespace spillway {

Mitigations least_mitigations(BlockKind kind, std::int64_t tiles_per_slice) {
  if (kind != BlockKind::moe && kind != BlockKind::dense) return Mitigations::keep_all();
  return {{Tensor::block_input}, {}, {}, kind == BlockKind::moe ? tiles_per_slice : 0};
}

Footprint least_footprint(const StageBlock& b, Bytes alignment) {
  const FootprintSetting setting = footprint_setting(b.kind, b.context, alignment);
  const Mitigations least = least_mitigations(b.kind, 1);
  if (b.kind != BlockKind::moe) return footprint(compile(b.kind, b.context, least), setting, {});
  // Two slices: the second meets what the first has brought to life, and further ones meet the same.
  const ExpertRows worst = worst_slice(b.context, 1);
  return footprint(compile(b.kind, b.context, {least, least, 2}), setting, {{}, {worst, worst}});
}

}  // namespace spillway
