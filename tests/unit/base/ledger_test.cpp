// The ledger's sums, rounding and peaks.
#include "base/ledger.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"

namespace spillway {
namespace {

TEST(ByteLedger, RoundsEveryBlockAndNotTheSum) {
  ByteLedger ledger(Bytes(256));
  ledger.add(Category::parameters, Bytes(1));
  ledger.add(Category::parameters, Bytes(1));
  EXPECT_EQ(ledger.live(), Bytes(512));
  ledger.remove(Category::parameters, Bytes(1));
  EXPECT_EQ(ledger.live(Category::parameters), Bytes(256));
}

TEST(ByteLedger, ABlockOfZeroBytesTakesNothing) {
  ByteLedger ledger;
  ledger.add(Category::activation_moe, Bytes(0));
  EXPECT_EQ(ledger.live(), Bytes(0));
  EXPECT_EQ(ledger.peak(), Bytes(0));
}

TEST(ByteLedger, ThePeakOfTheSumIsNotTheSumOfThePeaks) {
  ByteLedger ledger(Bytes(1));
  ledger.add(Category::parameters, Bytes(100));
  ledger.remove(Category::parameters, Bytes(100));
  ledger.add(Category::workspace, Bytes(60));
  EXPECT_EQ(ledger.peak(Category::parameters), Bytes(100));
  EXPECT_EQ(ledger.peak(Category::workspace), Bytes(60));
  EXPECT_EQ(ledger.peak(), Bytes(100));
}

TEST(ByteLedger, ActivationPeakCountsBothKindsAtOneMoment) {
  ByteLedger ledger(Bytes(1));
  ledger.add(Category::activation_moe, Bytes(70));
  ledger.add(Category::activation_other, Bytes(20));  // 90 together: the peak
  ledger.remove(Category::activation_moe, Bytes(70));
  ledger.add(Category::activation_other, Bytes(60));  // 80 together
  ledger.add(Category::communication, Bytes(500));    // no activation
  EXPECT_EQ(ledger.activation_peak(), Bytes(90));
  EXPECT_EQ(ledger.peak(Category::activation_moe), Bytes(70));
  EXPECT_EQ(ledger.peak(Category::activation_other), Bytes(80));
  EXPECT_EQ(ledger.peak(), Bytes(580));
}

TEST(ByteLedger, ResetForgetsPeaksButNotWhatIsLive) {
  ByteLedger ledger(Bytes(1));
  ledger.add(Category::parameters, Bytes(1000));
  ledger.add(Category::activation_moe, Bytes(70));
  ledger.remove(Category::activation_moe, Bytes(50));
  ledger.reset_peaks();
  EXPECT_EQ(ledger.live(), Bytes(1020));
  EXPECT_EQ(ledger.peak(), Bytes(1020));
  EXPECT_EQ(ledger.peak(Category::activation_moe), Bytes(20));
  EXPECT_EQ(ledger.activation_peak(), Bytes(20));
  ledger.add(Category::activation_moe, Bytes(5));
  EXPECT_EQ(ledger.peak(), Bytes(1025));
}

TEST(ByteLedger, SumsBeyondThirtyTwoBits) {
  ByteLedger ledger;
  for (int i = 0; i < 8; ++i) ledger.add(Category::optimizer, Bytes(std::int64_t{1} << 30));
  EXPECT_EQ(ledger.peak(), Bytes(std::int64_t{8} << 30));
}

TEST(ByteLedger, TheTotalIsTheSumOfTheCategoriesAndReturnsToZero) {
  struct Block {
    Category category;
    Bytes bytes;
  };
  const CounterRandom random(3);
  ByteLedger ledger(Bytes(64));
  std::vector<Block> blocks;
  const auto sum = [&] {
    Bytes all;
    for (std::size_t c = 0; c < category_count; ++c) all += ledger.live(static_cast<Category>(c));
    return all;
  };
  for (std::uint64_t i = 0; i < 1000; ++i) {
    blocks.push_back({static_cast<Category>(random.below(2 * i, category_count)),
                      Bytes(static_cast<std::int64_t>(random.below(2 * i + 1, 5000)))});
    ledger.add(blocks.back().category, blocks.back().bytes);
    ASSERT_EQ(ledger.live(), sum());
    ASSERT_EQ(ledger.live().value % 64, 0);
  }
  const Bytes full = ledger.live();
  for (const Block& block : blocks) ledger.remove(block.category, block.bytes);
  EXPECT_EQ(ledger.live(), Bytes(0));
  EXPECT_EQ(sum(), Bytes(0));
  EXPECT_EQ(ledger.peak(), full);
}

TEST(Category, NamesAreInTheOrderOfTheEnumeration) {
  EXPECT_EQ(category_names[static_cast<std::size_t>(Category::parameters)], "parameters");
  EXPECT_EQ(category_names[static_cast<std::size_t>(Category::activation_moe)], "activation_moe");
  EXPECT_EQ(category_names[static_cast<std::size_t>(Category::workspace)], "workspace");
}

}  // namespace
}  // namespace spillway
