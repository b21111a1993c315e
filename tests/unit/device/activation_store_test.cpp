// Which tensors are one: a block's output is the next one's input, d_residual belongs to the micro-batch.
#include "device/activation_store.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace spillway::device {
namespace {

using T = Tensor;
constexpr auto category = Category::activation_other;
constexpr Extent extent{4, 16, 4};  // 256 bytes

struct ActivationStoreTest : testing::Test {
  Arena arena{{.cap = Bytes(1024), .alignment = Bytes(256), .backing = Bytes(1 << 16), .poison_freed = false}};
  ActivationStore store{arena, 2, 3};
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
    ActivationStore other(arena, 1, 1);
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

}  // namespace
}  // namespace spillway::device
