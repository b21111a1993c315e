// Which tensors are one: a block's output is the next one's input, d_residual belongs to the micro-batch. Where they are
// between forward and backward: device, host tier, FP8.
#include "device/activation_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway::device {
namespace {

using T = Tensor;
constexpr auto category = Category::activation_other;
constexpr Extent extent{4, 16, 4};  // 256 bytes

/// 256 bytes take a second to copy, everything else no time.
struct SecondPerBlock final : TimeModel {
  Seconds compute(Work) const override { return Seconds(0); }
  Seconds all_to_all(std::span<const Bytes>, std::span<const int>) const override { return Seconds(0); }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes bytes) const override { return Seconds(static_cast<double>(bytes.value) / 256); }
};
const SecondPerBlock second_per_block;

ArenaOptions blocks_of_256(std::int64_t blocks) {
  return {.cap = Bytes(256 * blocks), .alignment = Bytes(256), .backing = Bytes(1 << 16), .poison_freed = false};
}

struct ActivationStoreTest : testing::Test {
  Clock clock{&second_per_block};
  CopyEngine copies{clock};
  Arena arena{blocks_of_256(4)}, host{blocks_of_256(2)};
  ActivationStore store{{arena, host, copies, clock}, 2, 3};

  void fill(TensorKey key, float first) {
    const Matrix<float> m = store.get(key);
    for (std::int64_t i = 0; i < m.size(); ++i) m.data[i] = first + static_cast<float>(i);
  }
  void expect_filled(TensorKey key, float first) {
    const Matrix<float> m = store.get(key);
    for (std::int64_t i = 0; i < m.size(); ++i) ASSERT_EQ(m.data[i], first + static_cast<float>(i));
  }
};

TEST_F(ActivationStoreTest, BlockOutputIsTheNextBlocksInput) {
  ASSERT_TRUE(store.allocate({0, 1, T::block_output}, extent, category));
  EXPECT_TRUE(store.holds({0, 2, T::block_input}));
  EXPECT_EQ(store.get({0, 2, T::block_input}).data, store.get({0, 1, T::block_output}).data);
  store.set_ready({0, 1, T::block_output}, Seconds(3));
  EXPECT_EQ(store.ready({0, 2, T::block_input}), Seconds(3));
  EXPECT_FALSE(store.holds({0, 1, T::block_input}));
  EXPECT_FALSE(store.holds({1, 2, T::block_input})) << "another micro-batch";
  store.release({0, 2, T::block_input});
  EXPECT_FALSE(store.holds({0, 1, T::block_output}));
}

TEST_F(ActivationStoreTest, LastBlocksOutputIsNotTheNextMicroBatchsInput) {
  ASSERT_TRUE(store.allocate({0, 2, T::block_output}, extent, category));
  EXPECT_FALSE(store.holds({1, 0, T::block_input}));
  ASSERT_TRUE(store.allocate({1, 0, T::block_input}, extent, category));
  EXPECT_NE(store.get({0, 2, T::block_output}).data, store.get({1, 0, T::block_input}).data);
}

TEST_F(ActivationStoreTest, BlocksOfAMicroBatchShareTheResidualsGradient) {
  ASSERT_TRUE(store.allocate({0, 2, T::d_residual}, extent, category));
  EXPECT_TRUE(store.holds({0, 0, T::d_residual}));
  EXPECT_FALSE(store.holds({1, 2, T::d_residual}));
  store.release({0, 1, T::d_residual});
  EXPECT_FALSE(store.holds({0, 2, T::d_residual}));
}

TEST_F(ActivationStoreTest, RefusesWhatTheCapDoesNotAllowAndStaysAsItWas) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(store.allocate({0, i, T::qkv}, extent, category));
  EXPECT_FALSE(store.allocate({1, 0, T::qkv}, {4, 32, 4}, category));
  EXPECT_FALSE(store.holds({1, 0, T::qkv}));
  EXPECT_TRUE(store.allocate({1, 0, T::qkv}, extent, category));
}

TEST_F(ActivationStoreTest, UsingWhatIsNotThereOrIsThereAlreadyIsAnError) {
  ASSERT_TRUE(store.allocate({0, 0, T::qkv}, extent, category));
  EXPECT_THROW(store.allocate({0, 0, T::qkv}, extent, category), InternalError);
  EXPECT_THROW(store.get({0, 1, T::qkv}), InternalError);
  EXPECT_THROW(store.release({0, 1, T::qkv}), InternalError);
  store.release({0, 0, T::qkv});
  EXPECT_THROW(store.release({0, 0, T::qkv}), InternalError);
  EXPECT_THROW(store.release_when({0, 0, T::qkv}, [] { return true; }), InternalError);
}

TEST_F(ActivationStoreTest, ANewTensorIsReadyAtZeroWhateverLivedThereBefore) {
  store.allocate({0, 0, T::qkv}, extent, category);
  store.set_ready({0, 0, T::qkv}, Seconds(5));
  store.release({0, 0, T::qkv});
  store.allocate({0, 0, T::qkv}, extent, category);
  EXPECT_EQ(store.ready({0, 0, T::qkv}), Seconds(0));
}

// Reported elsewhere: an expert rank without tokens had no buffer and dropped out.
TEST_F(ActivationStoreTest, Reports10TensorsWithoutRowsAreThereAndHaveNoRows) {
  ASSERT_TRUE(store.allocate({0, 0, T::qkv}, extent, category));
  ASSERT_TRUE(store.allocate({0, 0, T::fc1_input}, {0, 16, 4}, category));
  EXPECT_TRUE(store.holds({0, 0, T::fc1_input}));
  EXPECT_EQ(store.get({0, 0, T::fc1_input}).rows, 0);
  EXPECT_EQ(store.get({0, 0, T::fc1_input}).cols, 16);
  store.release({0, 0, T::fc1_input});
  EXPECT_TRUE(store.holds({0, 0, T::qkv}));
  EXPECT_EQ(arena.ledger().live(), Bytes(256));
}

TEST_F(ActivationStoreTest, ClearReleasesEverythingAndSoDoesTheEnd) {
  {
    ActivationStore other({arena, host, copies, clock}, 1, 1);
    other.allocate({0, 0, T::qkv}, extent, category);
    other.allocate({0, 0, T::fc1_input}, {0, 16, 4}, category);
  }
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  store.allocate({0, 0, T::qkv}, extent, category);
  store.allocate({1, 2, T::block_output}, extent, category);
  store.clear();
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  EXPECT_TRUE(store.allocate({0, 0, T::qkv}, extent, category));
}

TEST_F(ActivationStoreTest, OffloadFreesTheDeviceAtOnceAndReloadBringsTheSameNumbersBack) {
  const TensorKey key{0, 1, T::qkv};
  ASSERT_TRUE(store.allocate(key, extent, category));
  fill(key, 3);
  ASSERT_TRUE(store.offload(key, category));
  EXPECT_FALSE(store.holds(key));
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  EXPECT_EQ(host.ledger().live(), Bytes(256));
  EXPECT_EQ(store.elements(key), 64) << "its extents stay known";
  ASSERT_TRUE(store.reload(key, category));
  EXPECT_EQ(host.ledger().live(), Bytes(0));
  EXPECT_EQ(arena.ledger().live(), Bytes(256));
  store.wait(key);
  expect_filled(key, 3);
}

TEST_F(ActivationStoreTest, AReloadedTensorIsReadyWhenBothItsCopiesHaveEnded) {
  const TensorKey key{0, 0, T::qkv};
  store.allocate(key, extent, category);
  store.set_ready(key, Seconds(5));
  store.offload(key, category);  // from 5 to 6
  EXPECT_EQ(clock.copy_lane(CopyLane::out), Seconds(6));
  store.reload(key, category);  // not before the copy out has ended: from 6 to 7
  EXPECT_EQ(store.ready(key), Seconds(7));
  EXPECT_EQ(store.copied(key), Seconds(7));
  store.set_ready(key, Seconds(9));
  EXPECT_EQ(store.copied(key), Seconds(0)) << "written anew: no copy to wait for";
}

TEST_F(ActivationStoreTest, ACopyOutIsNotIssuedBeforeTheOperatorsThatPrecedeIt) {
  const TensorKey key{0, 0, T::qkv};
  store.allocate(key, extent, category);
  store.set_ready(key, Seconds(1));
  clock.compute_end(Seconds(4), {});
  store.offload(key, category);
  EXPECT_EQ(clock.copy_lane(CopyLane::out), Seconds(5));
}

TEST_F(ActivationStoreTest, WhoTakesOverTheMemoryOfACopyIsReadyWhenTheCopyEnds) {
  for (int i = 0; i < 3; ++i) store.allocate({0, i, T::qkv}, extent, category);
  store.set_ready({0, 0, T::qkv}, Seconds(2));
  store.offload({0, 0, T::qkv}, category);  // until 3
  ASSERT_TRUE(store.allocate({1, 0, T::qkv}, extent, category));
  EXPECT_EQ(store.ready({1, 0, T::qkv}), Seconds(0)) << "the fourth block was free";
  ASSERT_TRUE(store.allocate({1, 1, T::qkv}, extent, category));
  EXPECT_EQ(store.ready({1, 1, T::qkv}), Seconds(3));
  EXPECT_EQ(store.copied({1, 1, T::qkv}), Seconds(3));
}

TEST_F(ActivationStoreTest, AFullHostTierRefusesAndTheTensorStaysOnTheDevice) {
  for (int i = 0; i < 3; ++i) store.allocate({0, i, T::qkv}, extent, category);
  fill({0, 2, T::qkv}, 7);
  ASSERT_TRUE(store.offload({0, 0, T::qkv}, category));
  ASSERT_TRUE(store.offload({0, 1, T::qkv}, category));
  EXPECT_FALSE(store.offload({0, 2, T::qkv}, category));
  ASSERT_TRUE(store.holds({0, 2, T::qkv}));
  expect_filled({0, 2, T::qkv}, 7);
  ASSERT_TRUE(store.reload({0, 0, T::qkv}, category));
  EXPECT_TRUE(store.offload({0, 2, T::qkv}, category)) << "room again";
}

TEST_F(ActivationStoreTest, AReloadThatTheCapDoesNotAllowLeavesTheTensorInTheHostTier) {
  const TensorKey key{0, 0, T::qkv};
  store.allocate(key, extent, category);
  store.offload(key, category);
  ASSERT_TRUE(store.allocate({0, 1, T::qkv}, {16, 16, 4}, category));
  EXPECT_FALSE(store.reload(key, category));
  EXPECT_FALSE(store.holds(key));
  EXPECT_EQ(host.ledger().live(), Bytes(256));
  store.release({0, 1, T::qkv});
  EXPECT_TRUE(store.reload(key, category));
}

TEST_F(ActivationStoreTest, OnlyWhatIsOnTheDeviceLeavesItAndOnlyWhatIsInTheHostTierReturns) {
  const TensorKey key{0, 0, T::qkv};
  EXPECT_THROW(store.offload(key, category), InternalError);
  EXPECT_THROW(store.reload(key, category), InternalError);
  store.allocate(key, extent, category);
  EXPECT_THROW(store.reload(key, category), InternalError);
  store.offload(key, category);
  EXPECT_THROW(store.offload(key, category), InternalError);
  EXPECT_THROW(store.get(key), InternalError);
}

TEST_F(ActivationStoreTest, TheFp8FormTakesAByteAValueAndAScalePerGroup) {
  const TensorKey key{0, 0, T::qkv};
  const Extent large{2, 150, 4};  // 300 values: 3 groups, 312 bytes as FP8
  Arena precise{{.cap = Bytes(2048), .alignment = Bytes(1), .backing = Bytes(1 << 16), .poison_freed = false}};
  ActivationStore mine({precise, host, copies, clock}, 1, 1);
  ASSERT_TRUE(mine.allocate(key, large, category));
  ASSERT_TRUE(mine.allocate_small(key, category));
  EXPECT_EQ(precise.ledger().live(), Bytes(1200 + 312));
  const auto [values, scales] = mine.small(key);
  EXPECT_EQ(reinterpret_cast<char*>(values) - reinterpret_cast<char*>(scales), 12) << "three scales, then values";
  std::fill_n(values, 300, std::uint8_t{9});
  std::fill_n(scales, 3, 0.5f);
  mine.release(key);
  EXPECT_EQ(precise.ledger().live(), quantized_bytes(300));
  ASSERT_TRUE(mine.allocate_again(key, category));
  EXPECT_EQ(mine.get(key).rows, 2);
  EXPECT_EQ(mine.get(key).cols, 150);
  EXPECT_EQ(mine.small(key).values[299], 9);
  EXPECT_EQ(mine.small(key).scales[2], 0.5f);
  mine.release_small(key);
  EXPECT_EQ(precise.ledger().live(), Bytes(1200));
  EXPECT_THROW(mine.small(key), InternalError);
  EXPECT_THROW(mine.release_small(key), InternalError);
}

TEST_F(ActivationStoreTest, AnFp8FormThatTheCapDoesNotAllowIsRefused) {
  ASSERT_TRUE(store.allocate({0, 0, T::qkv}, {16, 16, 4}, category));  // all of the cap
  EXPECT_FALSE(store.allocate_small({0, 0, T::qkv}, category));
  store.release({0, 0, T::qkv});
  ASSERT_TRUE(store.allocate_small({0, 0, T::qkv}, category));
  EXPECT_FALSE(store.allocate_again({0, 0, T::qkv}, category)) << "1024 bytes beside 512";
}

TEST_F(ActivationStoreTest, SettlingMakesRoomOfCopiesThatTheOldClockKnew) {
  store.allocate({0, 0, T::qkv}, {12, 16, 4}, category);  // 768 bytes
  store.set_ready({0, 0, T::qkv}, Seconds(10));
  Arena large_host{blocks_of_256(8)};
  {
    ActivationStore mine({arena, large_host, copies, clock}, 1, 1);
    mine.allocate({0, 0, T::qkv}, extent, category);
    mine.set_ready({0, 0, T::qkv}, Seconds(10));
    mine.offload({0, 0, T::qkv}, category);  // until 11
    EXPECT_EQ(arena.still_copied(), Bytes(256));
    mine.settle();
    EXPECT_EQ(arena.still_copied(), Bytes(0));
    mine.clear();
  }
  clock.restart();
  ASSERT_TRUE(store.allocate({0, 1, T::qkv}, extent, category));
  EXPECT_EQ(store.ready({0, 1, T::qkv}), Seconds(0));
}

TEST_F(ActivationStoreTest, ClearEmptiesTheHostTierAndTheFp8FormsToo) {
  store.allocate({0, 0, T::qkv}, extent, category);
  store.allocate({0, 1, T::qkv}, extent, category);
  store.offload({0, 0, T::qkv}, category);
  store.allocate_small({0, 1, T::qkv}, category);
  store.clear();
  EXPECT_EQ(arena.ledger().live(), Bytes(0));
  EXPECT_EQ(host.ledger().live(), Bytes(0));
}

}  // namespace
}  // namespace spillway::device
