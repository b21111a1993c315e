#include "workload/routing/apportion.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace spillway {
namespace {

constexpr int index_bits = 16;

/// What is left for the members below the cap.
struct Remaining {
  std::int64_t total = 0, weight = 0;
};

/// Fixes members whose quota exceeds the cap at the cap, until none does; the others are marked -1.
Remaining fix_capped(std::span<const std::int64_t> weights, const Quota& quota, std::span<std::int32_t> rows) {
  std::fill(rows.begin(), rows.end(), -1);
  Remaining rest{quota.total, std::accumulate(weights.begin(), weights.end(), std::int64_t{0})};
  for (bool changed = true; changed;) {
    changed = false;
    const Remaining now = rest;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (rows[i] >= 0 || weights[i] * now.total <= quota.cap * now.weight) continue;
      rows[i] = static_cast<std::int32_t>(quota.cap);
      rest.total -= quota.cap;
      rest.weight -= weights[i];
      changed = true;
    }
  }
  return rest;
}

}  // namespace

void apportion(std::span<const std::int64_t> weights, Quota quota, std::span<std::int32_t> rows) {
  const auto members = static_cast<std::int64_t>(weights.size());
  ensure(members <= max_apportioned_members, "{} members to apportion rows to", members);
  // 1. The cap.
  const Remaining rest = fix_capped(weights, quota, rows);
  ensure(rest.total >= 0 && rest.weight < max_apportioned_weight && (rest.total == 0 || rest.weight > 0),
         "{} rows cannot be placed on {} members of at most {} rows", quota.total, members, quota.cap);

  // 2. Whole parts. The quotient through a reciprocal is off by one at most, since rows fit 31 bits; the remainder says.
  std::int64_t left = rest.total;
  std::vector<std::uint64_t> remainders(weights.size());
  const double reciprocal = rest.weight > 0 ? 1.0 / static_cast<double>(rest.weight) : 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (rows[i] >= 0) continue;
    const std::int64_t share = weights[i] * rest.total;
    auto whole = static_cast<std::int64_t>(static_cast<double>(share) * reciprocal);
    std::int64_t remainder = share - whole * rest.weight;
    if (remainder < 0) --whole, remainder += rest.weight;
    if (remainder >= rest.weight && rest.weight > 0) ++whole, remainder -= rest.weight;
    rows[i] = static_cast<std::int32_t>(whole);
    remainders[i] = static_cast<std::uint64_t>(remainder);
    left -= whole;
  }
  if (left == 0) return;

  // 3. One row more for each of the `left` largest remainders. A remainder above 0 means a quota that is no whole
  // number and at most the cap, so its member stays within the cap; there are more than `left` of them.
  const std::int64_t start = quota.turn % members * left % members;
  std::vector<std::uint64_t> keys;  // smallest first: (largest remainder, earliest in the cycle from `start`)
  keys.reserve(weights.size());
  for (std::int64_t place = 0, i = start; place < members; ++place, i = i + 1 < members ? i + 1 : 0) {
    if (remainders[i] == 0) continue;
    keys.push_back((static_cast<std::uint64_t>(rest.weight) - remainders[i]) << index_bits |
                   static_cast<std::uint64_t>(place));
  }
  std::nth_element(keys.begin(), keys.begin() + left, keys.end());
  for (std::int64_t n = 0; n < left; ++n) {
    const auto place = static_cast<std::int64_t>(keys[n] & ((1u << index_bits) - 1));
    ++rows[(start + place) % members];
  }
}

}  // namespace spillway
