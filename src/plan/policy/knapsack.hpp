#pragma once
// 0/1 knapsack by dynamic programming, for every capacity at once.
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace spillway {

struct KnapsackItem {
  Bytes weight;
  Seconds value;
};

class Knapsack {
 public:
  /// Weights count in steps, rounded up: their greatest common divisor, or more so that all of them together are about
  /// `steps`. With the divisor every solution is exact.
  explicit Knapsack(const std::vector<KnapsackItem>& items, std::int64_t steps = 1024);

  /// A best choice for some capacity, as a flag per item.
  struct Solution {
    std::vector<bool> taken;
    Seconds value;
    Bytes weight;  ///< not rounded
  };
  /// The solutions that differ in value, best first, each in the least capacity that reaches it; the last takes nothing
  /// of any weight.
  std::vector<Solution> solutions() const;

 private:
  Solution solution(std::size_t capacity) const;

  std::vector<KnapsackItem> items_;
  std::vector<std::size_t> weights_;      // in steps
  std::vector<Seconds> best_;             // [capacity] value of all items
  std::vector<std::vector<bool>> taken_;  // [item][capacity] by the first items up to this one
};

}  // namespace spillway
