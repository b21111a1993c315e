#include "device/ops/initialize.hpp"

#include <numbers>

#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

Operand<float> normal(std::int64_t n, std::uint64_t key, std::uint64_t first) {
  Operand<float> x(1, n);
  initialize_normal(x, key, 1.0, first);
  return x;
}

TEST(InitializeNormal, AnElementDependsOnItsGlobalIndexAlone) {
  constexpr std::int64_t n = 9001;
  const Operand<float> whole = normal(n, 5, 0);
  for (const std::int64_t first : {1, 2, 3, 4, 5, 4095, 4096, 9000}) {
    const Operand<float> part = normal(n - first, 5, static_cast<std::uint64_t>(first));
    for (std::int64_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], whole[first + i]) << first << " + " << i;
  }
}

TEST(InitializeNormal, IndicesAboveFourGigaGiveOtherNumbers) {
  const Operand<float> low = normal(64, 5, 0), high = normal(64, 5, std::uint64_t{1} << 34);
  int equal = 0;
  for (int i = 0; i < 64; ++i) equal += low[i] == high[i];
  EXPECT_LE(equal, 1);
}

TEST(InitializeNormal, FollowsBoxMullerOfItsPhiloxBlock) {
  const std::uint64_t key = 0x123456789abcdefu;
  const Operand<float> x = normal(400, key, 0);
  for (std::uint32_t block = 0; block < 100; ++block) {
    const PhiloxBlock bits = philox({block, 0, 0, 0}, {0x89abcdefu, 0x01234567u});
    for (std::uint32_t pair = 0; pair < 4; pair += 2) {
      const double radius = std::sqrt(-2.0 * std::log((bits[pair] + 0.5) * 0x1.0p-32));
      const double angle = 2.0 * std::numbers::pi * bits[pair + 1] * 0x1.0p-32;
      EXPECT_NEAR(x[4 * block + pair], radius * std::cos(angle), 1e-4);
      EXPECT_NEAR(x[4 * block + pair + 1], radius * std::sin(angle), 1e-4);
    }
  }
}

TEST(InitializeNormal, HasTheMomentsOfTheNormalDistributionAndNoCorrelation) {
  constexpr std::int64_t n = 1 << 20;
  Operand<float> x(1, n);
  initialize_normal(x, 3, 0.02, 1);
  double mean = 0, square = 0, fourth = 0, neighbours = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double z = x[i] / 0.02;
    ASSERT_TRUE(std::isfinite(z));
    mean += z;
    square += z * z;
    fourth += z * z * z * z;
    if (i > 0) neighbours += z * x[i - 1] / 0.02;
  }
  EXPECT_NEAR(mean / n, 0, 0.005);
  EXPECT_NEAR(square / n, 1, 0.007);
  EXPECT_NEAR(fourth / n, 3, 0.06);
  EXPECT_NEAR(neighbours / n, 0, 0.005);
}

TEST(InitializeNormal, KeysGiveDifferentNumbers) {
  const Operand<float> a = normal(1000, 1, 0), b = normal(1000, 2, 0);
  int equal = 0;
  for (int i = 0; i < 1000; ++i) equal += a[i] == b[i];
  EXPECT_LE(equal, 1);
}

}  // namespace
}  // namespace spillway::device::ops
