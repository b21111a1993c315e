// Worked by hand.
#include "run/intervals.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using List = std::vector<device::Interval>;
device::Interval from(double start, double end) { return {Seconds(start), Seconds(end)}; }

TEST(Intervals, UnionCountsEverySecondOnce) {
  EXPECT_EQ(union_length({}), Seconds(0));
  EXPECT_EQ(union_length({from(1, 3), from(2, 4), from(2, 3), from(6, 7), from(7, 7)}), Seconds(4));
}

TEST(Intervals, CommonSecondsAreThoseInBothLists) {
  const List a = {from(0, 2), from(3, 6), from(8, 9)}, b = {from(1, 4), from(5, 8.5)};
  EXPECT_EQ(common_length(a, b), Seconds(1 + 1 + 1 + 0.5));
  EXPECT_EQ(common_length(b, a), common_length(a, b));
  EXPECT_EQ(common_length(a, {}), Seconds(0));
}

TEST(Intervals, AreSortedByStart) {
  List list = {from(3, 4), from(1, 9), from(2, 2)};
  sort_by_start(list);
  EXPECT_EQ(list[0].end, Seconds(9));
  EXPECT_EQ(list[2].start, Seconds(3));
}

}  // namespace
}  // namespace spillway
