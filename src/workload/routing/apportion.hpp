#pragma once
// Whole rows from weights: largest remainder under a cap.
#include <cstdint>
#include <span>

namespace spillway {

struct Quota {
  std::int64_t total = 0;  ///< rows to give away, at most cap * (number of positive weights)
  std::int64_t cap = 0;    ///< most rows of one member (a token takes an expert once, so the sequence length)
  std::int64_t turn = 0;   ///< whose turn it is: equal remainders are served in a cycle that goes on with every turn
};

/// Most members and largest sum of weights that apportion() takes.
inline constexpr std::int64_t max_apportioned_members = 1 << 16;
inline constexpr std::int64_t max_apportioned_weight = std::int64_t{1} << 46;

/// rows[i] in proportion to weights[i] (whole numbers >= 0, so that no rounding of a platform enters), summing to
/// quota.total, none above quota.cap; what a capped member cannot take goes to the others in proportion. A member of
/// weight 0 gets nothing. With equal weights the totals of any consecutive turns differ by at most one row.
/// InternalError where the total cannot be placed. sum(weights) * total must fit 63 bits.
void apportion(std::span<const std::int64_t> weights, Quota quota, std::span<std::int32_t> rows);

}  // namespace spillway
