#include "plan/program/buckets.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace spillway {

void GroupElements::add(int block, std::int64_t elements) {
  const std::int64_t before = shard();
  buckets.push_back({block, elements, shard_elements(elements, shards), before * shards, before});
}

const Bucket& GroupElements::bucket_of(int block) const {
  const auto found =
      std::find_if(buckets.begin(), buckets.end(), [block](const Bucket& b) { return b.block == block; });
  ensure(found != buckets.end(), "block {} has no parameters of the group", block);
  return *found;
}

std::int64_t GroupElements::elements() const {
  return std::accumulate(buckets.begin(), buckets.end(), std::int64_t{0},
                         [](std::int64_t sum, const Bucket& b) { return sum + b.elements; });
}

RankElements rank_elements(std::span<const StageBlock> blocks, const Grid& grid, bool overlap_gradients) {
  RankElements all;
  all[static_cast<int>(ParameterGroup::dense)] = {grid.data(), grid.tensor(), overlap_gradients, {}};
  all[static_cast<int>(ParameterGroup::expert)] = {grid.expert_replicas(), grid.expert(), overlap_gradients, {}};
  all[static_cast<int>(ParameterGroup::plane)] = {grid.plane(), 1, overlap_gradients, {}};
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    std::array<std::int64_t, parameter_group_count> of_block{};
    const StageBlock& block = blocks[static_cast<std::size_t>(b)];
    for (const ParameterShape& p : parameters(block.kind, block.context))
      of_block[static_cast<std::size_t>(p.group)] += p.size();
    for (std::size_t g = 0; g < of_block.size(); ++g)
      if (of_block[g] > 0) all[g].add(b, of_block[g]);
  }
  return all;
}

std::int64_t reduction_piece(const GroupElements& group) {
  std::int64_t largest = 0;
  for (const Bucket& bucket : group.buckets) largest = std::max(largest, bucket.shard);
  return std::min(largest, std::max<std::int64_t>(1, reduction_bytes.value / (4 * group.shards)));
}

Bytes reduction_buffer(const GroupElements& group) {
  if (group.shards == 1) return Bytes(0);
  return Bytes(group.shards * reduction_piece(group) * 4);
}

}  // namespace spillway
