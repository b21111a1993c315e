#pragma once
// Parameters of a rank in buckets, one per block and group: what one gradient reduction sums, so that it can begin when the
// last backward pass of the block is done.
#include <array>
#include <span>
#include <vector>

#include "plan/program/stage.hpp"

namespace spillway {

/// The parameters of one block in one group, padded so that every rank that shares them has a shard of the same size: in
/// the group's flat range from element `first` on, shard after shard.
struct Bucket {
  int block = 0;
  std::int64_t elements = 0;        ///< before padding
  std::int64_t shard = 0;           ///< elements of each rank that shares them
  std::int64_t first = 0;           ///< of [shards x shard] in the group
  std::int64_t first_of_shard = 0;  ///< in the flat range of one rank's shards, where its optimizer state lies
};

/// One parameter group of a rank.
struct GroupElements {
  std::int64_t shards = 1;  ///< ranks that share the parameters, each its shards of the optimizer state
  int distance = 1;         ///< between the world ranks of neighbours among them
  /// Reductions run beside backward passes, so their receive buffer is held all the time.
  bool overlapped = false;
  std::vector<Bucket> buckets = {};  ///< in the order of the blocks; blocks without parameters of the group have none

  void add(int block, std::int64_t elements);
  const Bucket& bucket_of(int block) const;
  std::int64_t elements() const;  ///< before padding
  /// Of one rank over all buckets.
  std::int64_t shard() const { return buckets.empty() ? 0 : buckets.back().first_of_shard + buckets.back().shard; }
  std::int64_t padded() const { return shard() * shards; }
};
using RankElements = std::array<GroupElements, parameter_group_count>;
RankElements rank_elements(std::span<const StageBlock> blocks, const Grid& grid, bool overlap_gradients = false);

/// Most bytes that a rank receives of one group before it sums them: the pieces of all that share it.
inline constexpr Bytes reduction_bytes{std::int64_t{64} << 20};
/// Elements that every rank sends to every other at once, at most.
std::int64_t reduction_piece(const GroupElements& group);
/// Receive buffer of the gradient reduction of one group (fp32): nothing when no rank shares it.
Bytes reduction_buffer(const GroupElements& group);

}  // namespace spillway
