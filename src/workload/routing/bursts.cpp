#include "workload/routing/bursts.hpp"

#include <cmath>

#include "base/random.hpp"
#include "workload/routing/purpose.hpp"

namespace spillway {

std::int64_t BurstSchedule::period_start(std::int64_t period) const {
  return std::llround(static_cast<double>(period) * static_cast<double>(length_) / fraction_);
}

std::optional<std::int64_t> BurstSchedule::burst(std::int64_t iteration) const {
  if (fraction_ <= 0) return std::nullopt;
  auto period = static_cast<std::int64_t>(static_cast<double>(iteration) * fraction_ / static_cast<double>(length_));
  while (period_start(period) > iteration) --period;
  while (period_start(period + 1) <= iteration) ++period;
  const std::int64_t slack = period_start(period + 1) - period_start(period) - length_;
  const std::uint64_t offset = CounterRandom(seed_, Purpose::burst_offset).below(period, slack + 1);
  const std::int64_t into = iteration - period_start(period) - static_cast<std::int64_t>(offset);
  if (into < 0 || into >= length_) return std::nullopt;
  return period;
}

}  // namespace spillway
