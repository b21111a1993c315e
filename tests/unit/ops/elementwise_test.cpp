#include "device/ops/elementwise.hpp"

#include <bit>
#include <limits>

#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

class Elementwise : public ::testing::TestWithParam<std::int64_t> {
 protected:
  const std::int64_t n = GetParam();
  const Operand<float> x = random_operand(1, n, 1), y = random_operand(1, n, 2);
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Sizes, Elementwise, ::testing::Values(0, 1, 3, 4095, 4096, 4097, 9001));

TEST_P(Elementwise, AccumulateAddsEveryElementOnce) {
  Operand<float> sum(y), expected(y);
  accumulate(stream, x, sum);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 3 * n)}));
  for (std::int64_t i = 0; i < n; ++i) expected[i] += x[i];
  expect_same_bits(sum, expected);
}

TEST_P(Elementwise, FillAndCopyReachEveryElementAndNoOther) {
  Operand<float> filled(1, n + 2, 1.0f), copied(1, n + 2, 1.0f);
  fill(stream, 7.0f, {filled.data() + 1, 1, n});
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * n)}));
  copy(stream, x, {copied.data() + 1, 1, n});
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * 2 * n)}));
  for (std::int64_t i = 0; i < n; ++i) {
    ASSERT_EQ(filled[i + 1], 7.0f);
    ASSERT_EQ(copied[i + 1], x[i]);
  }
  for (const std::int64_t border : {std::int64_t{0}, n + 1}) {
    EXPECT_EQ(filled[border], 1.0f);
    EXPECT_EQ(copied[border], 1.0f);
  }
}

TEST_P(Elementwise, ChecksumsOfPartsAddUpToThatOfTheWhole) {
  const std::uint64_t whole = checksum(x, 11);
  for (const std::int64_t cut : {std::int64_t{0}, n / 3, n / 2, n})
    EXPECT_EQ(whole, checksum({x.data() + cut, 1, n - cut}, 11 + static_cast<std::uint64_t>(cut)) +
                         checksum({x.data(), 1, cut}, 11));
}

TEST_P(Elementwise, ASingleInfinityOrNanIsNoticedAnywhere) {
  EXPECT_TRUE(all_finite(x));
  using Limits = std::numeric_limits<float>;
  for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
    if (n == 0) break;
    for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
      Operand<float> spoiled(x);
      spoiled[at] = bad;
      EXPECT_FALSE(all_finite(spoiled)) << bad << " at " << at;
    }
    Operand<float> largest(x);
    largest[at] = Limits::lowest();
    EXPECT_TRUE(all_finite(largest));
  }
}

TEST(Checksum, IsTheStatedSum) {
  Operand<float> x(1, 2);
  x[0] = 1.0f, x[1] = -2.0f;
  EXPECT_EQ(checksum(x, 5), 0x3f800000u * std::uint64_t{11} + 0xc0000000u * std::uint64_t{13});
}

TEST(Checksum, NoticesASwapASignAndEveryBit) {
  const Operand<float> x = random_operand(1, 101, 1);
  const std::uint64_t before = checksum(x, 0);
  Operand<float> swapped(x), negated(x);
  std::swap(swapped[3], swapped[77]);
  negated[50] = -negated[50];
  EXPECT_NE(checksum(swapped, 0), before);
  EXPECT_NE(checksum(negated, 0), before);
  EXPECT_NE(checksum(x, 1), before);
  for (int bit = 0; bit < 32; ++bit) {
    Operand<float> flipped(x);
    flipped[42] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(flipped[42]) ^ (1u << bit));
    EXPECT_NE(checksum(flipped, 0), before) << "bit " << bit;
  }
}

}  // namespace
}  // namespace spillway::device::ops
