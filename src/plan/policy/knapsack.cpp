#include "plan/policy/knapsack.hpp"

#include <algorithm>
#include <numeric>

namespace spillway {

Knapsack::Knapsack(const std::vector<KnapsackItem>& items, std::int64_t steps) : items_(items) {
  std::int64_t total = 0, step = 0;
  for (const KnapsackItem& item : items) {
    total += item.weight.value;
    step = std::gcd(step, item.weight.value);
  }
  step = std::max({step, (total + steps - 1) / steps, std::int64_t{1}});
  for (const KnapsackItem& item : items)
    weights_.push_back(static_cast<std::size_t>((item.weight.value + step - 1) / step));

  best_.resize(std::accumulate(weights_.begin(), weights_.end(), std::size_t{1}));
  for (std::size_t i = 0; i < items.size(); ++i) {
    taken_.emplace_back(best_.size());
    for (std::size_t capacity = best_.size(); capacity-- > weights_[i];) {
      const Seconds with = best_[capacity - weights_[i]] + items[i].value;
      if (with <= best_[capacity]) continue;
      best_[capacity] = with;
      taken_[i][capacity] = true;
    }
  }
}

Knapsack::Solution Knapsack::solution(std::size_t capacity) const {
  Solution s{std::vector<bool>(items_.size()), best_[capacity], {}};
  for (std::size_t i = items_.size(); i-- > 0;) {
    if (!taken_[i][capacity]) continue;
    s.taken[i] = true;
    s.weight += items_[i].weight;
    capacity -= weights_[i];
  }
  return s;
}

std::vector<Knapsack::Solution> Knapsack::solutions() const {
  std::vector<Solution> list;
  for (std::size_t capacity = best_.size(); capacity-- > 0;)
    if (capacity == 0 || best_[capacity] > best_[capacity - 1]) list.push_back(solution(capacity));
  return list;
}

}  // namespace spillway
