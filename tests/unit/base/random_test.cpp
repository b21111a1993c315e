// Philox against the published vectors, and what CounterRandom promises of its numbers.
#include "base/random.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace spillway {
namespace {

// The three known answers for philox4x32, ten rounds, that come with the authors' Random123 library.
TEST(Philox, KnownAnswerOfZeros) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, KnownAnswerOfOnes) {
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, KnownAnswerOfPi) {
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Mix, OrderNumberAndValueOfArgumentsMatter) {
  const std::set<std::uint64_t> keys{mix(1), mix(2), mix(1, 0), mix(0, 1), mix(1, 2), mix(2, 1), mix(1, 2, 0)};
  EXPECT_EQ(keys.size(), 7u);
}

TEST(CounterRandom, ADrawDependsOnSeedPurposeAndIndexAlone) {
  const CounterRandom forward(7, 3);
  std::vector<std::uint64_t> drawn;
  for (std::uint64_t i = 0; i < 10; ++i) drawn.push_back(forward.bits(i));
  const CounterRandom again(7, 3);
  for (std::uint64_t i = 10; i-- > 0;) EXPECT_EQ(again.bits(i), drawn[i]);
  EXPECT_NE(CounterRandom(8, 3).bits(0), drawn[0]);
  EXPECT_NE(CounterRandom(7, 4).bits(0), drawn[0]);
}

TEST(CounterRandom, IndicesBeyondThirtyTwoBitsAreDistinct) {
  const CounterRandom random(1);
  EXPECT_NE(random.bits(0), random.bits(std::uint64_t{1} << 32));
  EXPECT_NE(random.bits(5), random.bits((std::uint64_t{1} << 32) + 5));
}

// Bounds below are five standard deviations of the estimate; the numbers are fixed, so a failure is a change.
TEST(CounterRandom, UniformFillsTheUnitIntervalEvenly) {
  constexpr int draws = 100000, cells = 100;
  const CounterRandom random(11);
  std::array<int, cells> count{};
  for (int i = 0; i < draws; ++i) {
    const double x = random.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    ++count[static_cast<std::size_t>(x * cells)];
  }
  double chi_square = 0;
  for (const int n : count) chi_square += (n - 1000.0) * (n - 1000.0) / 1000.0;
  // Mean 99, standard deviation sqrt(2 * 99) = 14.1.
  EXPECT_GT(chi_square, 99 - 5 * 14.1);
  EXPECT_LT(chi_square, 99 + 5 * 14.1);
}

TEST(CounterRandom, BelowReachesEveryValueEquallyAndNeverTheBound) {
  constexpr std::uint64_t n = 7;
  const CounterRandom random(12);
  std::array<int, n> count{};
  for (std::uint64_t i = 0; i < 70000; ++i) {
    const std::uint64_t value = random.below(i, n);
    ASSERT_LT(value, n);
    ++count[value];
  }
  for (const int c : count) EXPECT_NEAR(c, 10000, 5 * 92.6);  // sqrt(70000 * 1/7 * 6/7)
  EXPECT_EQ(random.below(3, 1), 0u);
}

TEST(CounterRandom, NormalHasTheMomentsOfAStandardNormal) {
  constexpr int draws = 100000;
  const CounterRandom random(13);
  double first = 0, second = 0, third = 0, fourth = 0;
  for (int i = 0; i < draws; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    first += x;
    second += x * x;
    third += x * x * x;
    fourth += x * x * x * x;
  }
  // Variances of one draw's powers: 1, 2, 15, 96.
  EXPECT_NEAR(first / draws, 0, 5 * std::sqrt(1.0 / draws));
  EXPECT_NEAR(second / draws, 1, 5 * std::sqrt(2.0 / draws));
  EXPECT_NEAR(third / draws, 0, 5 * std::sqrt(15.0 / draws));
  EXPECT_NEAR(fourth / draws, 3, 5 * std::sqrt(96.0 / draws));
}

TEST(CounterRandom, NeighbouringDrawsAreUncorrelated) {
  constexpr int draws = 100000;
  const CounterRandom random(14), other_purpose(14, 1);
  double neighbours = 0, purposes = 0;
  for (std::uint64_t i = 0; i < draws; ++i) {
    neighbours += random.normal(i) * random.normal(i + 1);
    purposes += random.normal(i) * other_purpose.normal(i);
  }
  EXPECT_NEAR(neighbours / draws, 0, 5 * std::sqrt(1.0 / draws));
  EXPECT_NEAR(purposes / draws, 0, 5 * std::sqrt(1.0 / draws));
}

}  // namespace
}  // namespace spillway
