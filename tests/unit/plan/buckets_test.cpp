// Buckets: the parameters of a block in one piece, shards of equal size, nothing left out.
#include "plan/program/buckets.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

GroupElements group_of(std::int64_t shards, std::initializer_list<std::int64_t> elements) {
  GroupElements group{shards, 1, false, {}};
  int block = 0;
  for (const std::int64_t n : elements) group.add(block++, n);
  return group;
}

TEST(GroupElements, TheLastShardOfEveryBucketIsPadded) {
  const GroupElements g = group_of(4, {10, 12, 2});
  EXPECT_EQ(g.elements(), 24);
  EXPECT_EQ(g.buckets[0].shard, 3);  // 10 in four shards
  EXPECT_EQ(g.buckets[1].shard, 3);
  EXPECT_EQ(g.buckets[2].shard, 1);  // fewer elements than ranks
  EXPECT_EQ(g.shard(), 7);
  EXPECT_EQ(g.padded(), 28);
}

TEST(GroupElements, BucketsFollowEachOtherInTheGroupAndInTheShards) {
  const GroupElements g = group_of(4, {10, 12, 2});
  std::int64_t first = 0, of_shard = 0;
  for (const Bucket& bucket : g.buckets) {
    EXPECT_EQ(bucket.first, first);
    EXPECT_EQ(bucket.first_of_shard, of_shard);
    first += 4 * bucket.shard;
    of_shard += bucket.shard;
  }
  EXPECT_EQ(first, g.padded());
  EXPECT_EQ(g.bucket_of(1).elements, 12);
  EXPECT_THROW(g.bucket_of(3), InternalError);
}

TEST(GroupElements, PaddingIsLessThanOneElementPerRankAndBucket) {
  for (std::int64_t shards = 1; shards <= 9; ++shards) {
    const GroupElements g = group_of(shards, {1, 17, 64, 1000, 3});
    EXPECT_LE(g.padded() - g.elements(), 5 * (shards - 1));
    EXPECT_EQ(g.padded() % shards, 0);
  }
}

TEST(RankElements, HaveABucketForEveryBlockWithParametersOfTheGroup) {
  StageSetup setup;
  setup.shape.num_hidden_layers = 4;
  setup.shape.first_k_dense_replace = 1;
  setup.shape.intermediate_size = 96;
  setup.grid = {1, 4, 2, 2};
  setup.sequence_length = 16;
  setup.layers_of_pieces = {4};
  const auto blocks = stage_blocks(setup, 0);  // embedding, dense, three with experts, head
  const RankElements elements = rank_elements(blocks, Grid(setup.grid), true);
  const auto blocks_of = [&](ParameterGroup group) {
    std::vector<int> list;
    for (const Bucket& b : elements[static_cast<std::size_t>(group)].buckets) list.push_back(b.block);
    return list;
  };
  EXPECT_EQ(blocks_of(ParameterGroup::dense), (std::vector{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(blocks_of(ParameterGroup::expert), (std::vector{2, 3, 4}));
  EXPECT_EQ(blocks_of(ParameterGroup::plane), (std::vector{1, 2, 3, 4, 5}));
  EXPECT_TRUE(elements[0].overlapped);
  EXPECT_EQ(elements[0].distance, 2);  // neighbours of one tensor coordinate
  EXPECT_EQ(elements[1].distance, 2);  // the same experts of the next expert group
  EXPECT_EQ(elements[2].distance, 1);
  EXPECT_FALSE(rank_elements(blocks, Grid(setup.grid))[0].overlapped);
}

TEST(ReductionBuffer, HoldsOnePieceOfEveryMemberAndNothingForOneMember) {
  EXPECT_EQ(reduction_buffer(group_of(1, {10})), Bytes(0));
  EXPECT_EQ(reduction_buffer(group_of(4, {})), Bytes(0));
  EXPECT_EQ(reduction_buffer(group_of(4, {10, 30, 6})), Bytes(4 * 8 * 4)) << "the largest bucket";
  EXPECT_EQ(reduction_buffer(group_of(4, {std::int64_t{1} << 30})), reduction_bytes);
  EXPECT_EQ(reduction_piece(group_of(4, {std::int64_t{1} << 30})), reduction_bytes.value / 16);
}

}  // namespace
}  // namespace spillway
