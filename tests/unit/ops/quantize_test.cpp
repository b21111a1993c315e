// FP8 storage: every code, every kind of rounding, groups, and a stated bound on what is lost.
#include <bit>
#include <limits>

#include "device/ops/elementwise.hpp"
#include "device/ops/quantize_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;
using Limits = std::numeric_limits<float>;

/// The FP8 form of x, with a border on either side that nobody may touch.
struct Stored {
  explicit Stored(const Operand<float>& x)
      : values_(static_cast<std::size_t>(x.size()) + 2, 0xaa),
        scales_(static_cast<std::size_t>((x.size() + fp8_group - 1) / fp8_group) + 2, -7.0f) {
    quantize(stream, x, values_.data() + 1, scales_.data() + 1);
    EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * x.size()) + quantized_bytes(x.size())}));
    EXPECT_TRUE(values_.front() == 0xaa && values_.back() == 0xaa && scales_.front() == -7 && scales_.back() == -7);
  }
  int code(std::int64_t i) const { return values_[static_cast<std::size_t>(i + 1)]; }
  float scale(std::int64_t group) const { return scales_[static_cast<std::size_t>(group + 1)]; }
  Operand<float> back(std::int64_t rows, std::int64_t cols) {
    Operand<float> x(1, rows * cols + 2, -7.0f);
    dequantize(stream, values_.data() + 1, scales_.data() + 1, {x.data() + 1, rows, cols});
    EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * rows * cols) + quantized_bytes(rows * cols)}));
    EXPECT_TRUE(x[0] == -7 && x[x.size() - 1] == -7);
    Operand<float> inner(rows, cols);
    for (std::int64_t i = 0; i < inner.size(); ++i) inner[i] = x[i + 1];
    return inner;
  }

 private:
  Stream stream;
  std::vector<std::uint8_t> values_;
  std::vector<float> scales_;
};

/// Numbers of very different sizes: random ones times powers of two, a size per group and one per element.
Operand<float> mixed_operand(std::int64_t rows, std::int64_t cols, std::uint64_t key) {
  Operand<float> x = random_operand(rows, cols, key);
  const CounterRandom random(key + 1);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto of_group = static_cast<int>(random.below(static_cast<std::uint64_t>(2 * (i / fp8_group)), 60)) - 30;
    const auto of_element = static_cast<int>(random.below(static_cast<std::uint64_t>(2 * i + 1), 24));
    x[i] = std::ldexp(x[i], of_group - of_element);
  }
  return x;
}

TEST(Quantize, BytesAreOnePerValueAndFourPerGroup) {
  EXPECT_EQ(quantized_bytes(0), Bytes(0));
  EXPECT_EQ(quantized_bytes(1), Bytes(5));
  EXPECT_EQ(quantized_bytes(128), Bytes(132));
  EXPECT_EQ(quantized_bytes(129), Bytes(137));
  EXPECT_EQ(quantized_bytes(std::int64_t{1} << 40), Bytes((std::int64_t{1} << 40) + (std::int64_t{1} << 35)));
}

TEST(E4M3, EveryCodeHasTheValueOfTheSpecificationAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = from_e4m3(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(value)) << code;
    else
      EXPECT_EQ(value, reference::from_e4m3(code)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    EXPECT_EQ(to_e4m3(value), code);
  }
  EXPECT_EQ(from_e4m3(0x7e), 448.0f);
  EXPECT_EQ(from_e4m3(0x08), 0x1p-6f);
  EXPECT_EQ(from_e4m3(0x01), 0x1p-9f);
}

TEST(E4M3, BetweenTwoNeighboursTheNearerIsTakenAndTheEvenOneInTheMiddle) {
  for (int code = 0; code < 0x7e; ++code) {
    const float low = from_e4m3(static_cast<std::uint8_t>(code)), high = from_e4m3(static_cast<std::uint8_t>(code + 1));
    const float middle = low + (high - low) / 2;  // exact
    const int even = code % 2 == 0 ? code : code + 1;
    for (const int sign : {0, 0x80}) {
      const auto signed_code = [sign](float x) { return to_e4m3(sign == 0 ? x : -x); };
      EXPECT_EQ(signed_code(middle), even | sign) << middle;
      EXPECT_EQ(signed_code(std::nextafter(middle, 0.0f)), code | sign) << middle;
      EXPECT_EQ(signed_code(std::nextafter(middle, 500.0f)), (code + 1) | sign) << middle;
    }
  }
}

TEST(E4M3, SaturatesBeyondTheLargestValueAndKeepsNansAndSigns) {
  for (const float x : {448.0f, 463.9f, 464.0f, 480.0f, 1e10f, Limits::max(), Limits::infinity()}) {
    EXPECT_EQ(to_e4m3(x), 0x7e) << x;
    EXPECT_EQ(to_e4m3(-x), 0xfe) << x;
  }
  EXPECT_EQ(to_e4m3(Limits::quiet_NaN()), 0x7f);
  EXPECT_EQ(to_e4m3(-Limits::quiet_NaN()), 0xff);
  EXPECT_EQ(to_e4m3(std::bit_cast<float>(0x7f800001u)), 0x7f) << "a NaN with a small payload";
  EXPECT_EQ(to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(to_e4m3(Limits::denorm_min()), 0);
  EXPECT_EQ(to_e4m3(-Limits::min()), 0x80);
}

TEST(E4M3, AgreesWithASearchThroughAllValues) {
  const CounterRandom random(3);
  for (std::uint64_t i = 0; i < 5000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random.below(i, std::uint64_t{1} << 24));
    // All mantissas, exponents from 2^-14 to 2^9.
    const float x = std::ldexp(1.0f + static_cast<float>(bits & 0x7fffffu) * 0x1p-23f, static_cast<int>(i % 24) - 14);
    ASSERT_EQ(to_e4m3(x), reference::to_e4m3(x)) << x;
    ASSERT_EQ(to_e4m3(-x), reference::to_e4m3(-x)) << x;
  }
}

class Quantize : public ::testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {
 protected:
  const std::int64_t rows = GetParam().first, cols = GetParam().second, n = rows * cols;
};
INSTANTIATE_TEST_SUITE_P(Shapes, Quantize,
                         ::testing::Values(std::pair{0, 7}, std::pair{1, 1}, std::pair{1, 127}, std::pair{1, 128},
                                           std::pair{3, 43}, std::pair{5, 100}, std::pair{64, 256},
                                           std::pair{9, 1001}));

TEST_P(Quantize, CodesAndScalesAreTheReferences) {
  const Operand<float> x = mixed_operand(rows, cols, 1);
  Stored stored(x);
  const std::int64_t groups = (n + fp8_group - 1) / fp8_group;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n));
  std::vector<double> scales(static_cast<std::size_t>(groups));
  reference::quantize(Operand<double>(x), codes.data(), scales.data());
  for (std::int64_t g = 0; g < groups; ++g)
    ASSERT_NEAR(stored.scale(g) / scales[static_cast<std::size_t>(g)], 1, 0x1p-23) << "group " << g;
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(stored.code(i), codes[static_cast<std::size_t>(i)]) << "element " << i;
  Operand<double> expected(rows, cols);
  reference::dequantize(codes.data(), scales.data(), expected);
  const Operand<float> back = stored.back(rows, cols);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_NEAR(back[i], expected[i], std::abs(expected[i]) * 0x1p-22) << i;
}

TEST_P(Quantize, LosesAtMostASixteenthOfAValueOrAThousandthOfTheScale) {
  const Operand<float> x = mixed_operand(rows, cols, 5);
  Stored stored(x);
  const Operand<float> back = stored.back(rows, cols);
  for (std::int64_t i = 0; i < n; ++i) {
    const double scale = stored.scale(i / fp8_group);
    const double bound = std::max(std::abs(double{x[i]}) / 16, scale / 1024) * (1 + 0x1p-20);
    ASSERT_LE(std::abs(double{back[i]} - x[i]), bound) << "element " << i << ": " << x[i];
  }
}

TEST_P(Quantize, WhatCameBackHasTheSameCodesAgain) {
  Stored first(mixed_operand(rows, cols, 9));
  const Operand<float> back = first.back(rows, cols);
  const Stored second(back);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(first.code(i), second.code(i)) << "element " << i;
}

TEST(Quantize, LargestOfAGroupIsTheLargestCodeAndGroupsRunAcrossRows) {
  Operand<float> x(3, 100);  // groups: 0 .. 127, 128 .. 255, 256 .. 299
  x[100] = -7.0f, x[128] = 896.0f, x[256] = 0x1p-20f;
  const Stored stored(x);
  EXPECT_EQ(stored.scale(0), 7.0f / 448);
  EXPECT_EQ(stored.scale(1), 2.0f);
  EXPECT_EQ(stored.scale(2), 0x1p-20f / 448);
  for (std::int64_t i = 0; i < 300; ++i)
    EXPECT_EQ(stored.code(i), i == 100 ? 0xfe : i == 128 || i == 256 ? 0x7e : 0) << "element " << i;
}

TEST(Quantize, GroupsOfZerosAreZeros) {
  Operand<float> x(2, 128);
  x[3] = -0.0f, x[128] = 1.0f;
  Stored stored(x);
  EXPECT_EQ(stored.scale(0), 0.0f);
  const Operand<float> back = stored.back(2, 128);
  for (std::int64_t i = 0; i < 256; ++i) ASSERT_EQ(back[i], x[i]);
}

TEST(Quantize, NumbersAtBothEndsOfTheRangeOfFloatsKeepTheBound) {
  for (const float largest : {Limits::max(), 1e-30f, 448 * Limits::min(), Limits::min(), Limits::denorm_min()}) {
    Operand<float> x(1, fp8_group);
    for (std::int64_t i = 0; i < x.size(); ++i) x[i] = largest * (static_cast<float>(i - 27) / 100);
    Stored stored(x);
    const Operand<float> back = stored.back(1, fp8_group);
    const double scale = stored.scale(0);
    EXPECT_GE(scale, Limits::min()) << largest;
    for (std::int64_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::abs(double{back[i]} - x[i]), std::max(std::abs(double{x[i]}) / 16, scale / 1024) * (1 + 0x1p-20))
          << x[i];
  }
}

TEST(Quantize, ANanStaysAloneAndAnInfinitySpoilsItsGroupSoThatBothAreNoticed) {
  for (const float bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()})
    for (const std::int64_t at : {std::int64_t{128}, std::int64_t{200}, std::int64_t{255}}) {
      Operand<float> x = random_operand(3, 128, 4);
      const Operand<float> healthy = Stored(x).back(3, 128);
      x[at] = bad;
      const Operand<float> back = Stored(x).back(3, 128);
      EXPECT_FALSE(all_finite(back)) << bad << " at " << at;
      for (std::int64_t i = 0; i < x.size(); ++i) {
        const bool lost = std::isnan(bad) ? i == at : i / 128 == 1;
        if (lost)
          ASSERT_TRUE(std::isnan(back[i])) << bad << " at " << at << ": element " << i;
        else if (i / 128 != 1)
          ASSERT_EQ(back[i], healthy[i]) << bad << " at " << at << ": element " << i;
        else
          ASSERT_NEAR(back[i], x[i], std::max(std::abs(x[i]) / 15, 0.01f));
      }
    }
  Operand<float> nothing_else(1, 5);
  nothing_else[2] = Limits::quiet_NaN();
  const Operand<float> back = Stored(nothing_else).back(1, 5);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_TRUE(i == 2 ? std::isnan(back[i]) : back[i] == 0.0f) << i;
}

}  // namespace
}  // namespace spillway::device::ops
