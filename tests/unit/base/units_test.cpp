// Quantities keep their unit and their arithmetic.
#include "base/units.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>

namespace spillway {
namespace {

template <class A, class B>
concept addable = requires(A a, B b) {
  a + b;
};

TEST(Quantity, AddsSubtractsScalesAndCompares) {
  Bytes b(100);
  b += Bytes(28);
  b -= Bytes(64);
  EXPECT_EQ(b, Bytes(64));
  EXPECT_EQ(b + Bytes(1), Bytes(65));
  EXPECT_EQ(b - Bytes(65), Bytes(-1));
  EXPECT_EQ(b * 3, Bytes(192));
  EXPECT_EQ(3 * b, Bytes(192));
  EXPECT_LT(Bytes(63), b);
  EXPECT_EQ(Bytes(), Bytes(0));
}

TEST(Quantity, AQuotientIsAPlainNumberAndDoesNotTruncate) {
  static_assert(std::same_as<decltype(Bytes(1) / Bytes(2)), double>);
  EXPECT_DOUBLE_EQ(Bytes(1) / Bytes(4), 0.25);
  EXPECT_DOUBLE_EQ(Seconds(3) / Seconds(2), 1.5);
}

TEST(Quantity, UnitsDoNotMix) {
  static_assert(!addable<Bytes, Flops>);
  static_assert(!addable<Bytes, Seconds>);
  static_assert(!addable<Bytes, std::int64_t>);
  static_assert(!std::convertible_to<std::int64_t, Bytes>);
  static_assert(addable<Bytes, Bytes>);
}

TEST(Quantity, HoldsMoreThanThirtyTwoBits) {
  const Bytes five_gib = Bytes(std::int64_t{5} << 30);
  EXPECT_EQ((five_gib * 4).value, std::int64_t{20} << 30);
}

TEST(RoundUp, GivesTheNextMultipleAndKeepsMultiples) {
  EXPECT_EQ(round_up(Bytes(0), Bytes(256)), Bytes(0));
  EXPECT_EQ(round_up(Bytes(1), Bytes(256)), Bytes(256));
  EXPECT_EQ(round_up(Bytes(256), Bytes(256)), Bytes(256));
  EXPECT_EQ(round_up(Bytes(257), Bytes(256)), Bytes(512));
  EXPECT_EQ(round_up(Bytes(10), Bytes(3)), Bytes(12));
}

TEST(Mebibytes, AreTwoToTheTwentyBytes) { EXPECT_DOUBLE_EQ(mebibytes(Bytes(3 << 19)), 1.5); }

}  // namespace
}  // namespace spillway
