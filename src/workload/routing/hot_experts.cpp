#include "workload/routing/hot_experts.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "workload/routing/purpose.hpp"

namespace spillway {
namespace {

constexpr int fraction_bits = 20;

/// Share of a hot sequence's rows that the hot experts take.
double hot_rows_share(HotSet kind, double peak, double ranks, double block) {
  switch (kind) {
    case HotSet::block:
    case HotSet::moving_block:
    case HotSet::spread:
      return peak / ranks;
    case HotSet::one_per_block:
      return peak / block;  // ranks experts at peak / (ranks * block) each
    case HotSet::none:
    case HotSet::empty:
      break;
  }
  return 0;
}

}  // namespace

double rank_imbalance_bound(const RoutingProblem& problem, std::int64_t ranks) {
  const std::int64_t k = problem.num_experts_per_tok;
  return static_cast<double>(ranks * std::min(k, problem.num_experts / ranks)) / static_cast<double>(k);
}

HotExperts::HotExperts(const Preset& preset, const RoutingOptions& options, const RoutingProblem& problem)
    : kind_(preset.hot),
      seed_(options.seed),
      same_block_(options.same_block),
      ranks_(options.reference_ranks),
      block_(problem.num_experts / options.reference_ranks) {
  const double share = hot_rows_share(kind_, options.peak, static_cast<double>(ranks_), static_cast<double>(block_));
  rows_fixed_ = std::llround(std::ldexp(share * static_cast<double>(problem.rows_per_sequence()), fraction_bits));
}

std::int64_t HotExperts::rows(std::int64_t nth) const {
  const std::int64_t whole = rows_fixed_ >> fraction_bits, fraction = rows_fixed_ - (whole << fraction_bits);
  const auto first = [&](std::int64_t n) { return whole * n + ((fraction * n) >> fraction_bits); };
  return first(nth + 1) - first(nth);
}

std::int64_t HotExperts::count() const {
  switch (kind_) {
    case HotSet::none:
      return 0;
    case HotSet::one_per_block:
      return ranks_;
    case HotSet::empty:
      return block_ + (block_ > 1 ? ranks_ - 1 : 0);
    default:
      return block_;
  }
}

void HotExperts::mark(HotPlace place, std::span<std::uint8_t> hot) const {
  std::ranges::fill(hot, std::uint8_t{0});
  const std::int64_t layer = same_block_ ? 0 : place.layer;
  const bool moving = kind_ == HotSet::moving_block;
  const CounterRandom random(seed_, Purpose::hot_set, moving ? 0 : place.move, layer);
  const auto base = static_cast<std::int64_t>(random.below(0, ranks_)) + (moving ? place.move : 0);
  const auto member = static_cast<std::int64_t>(random.below(1, block_));  // which expert of its block
  const auto set = [&](std::int64_t block, std::int64_t expert) { hot[block % ranks_ * block_ + expert % block_] = 1; };
  switch (kind_) {
    case HotSet::none:
      return;
    case HotSet::block:
    case HotSet::moving_block:
      for (std::int64_t i = 0; i < block_; ++i) set(base, i);
      return;
    case HotSet::one_per_block:
      for (std::int64_t i = 0; i < ranks_; ++i) set(i, member);
      return;
    case HotSet::spread:  // the i-th of block_ experts goes to block i * ranks / block_: distinct (block, expert) pairs
      for (std::int64_t i = 0; i < block_; ++i) set(base + i * ranks_ / block_, member + i);
      return;
    case HotSet::empty:
      for (std::int64_t i = 0; i < block_; ++i) set(base, i);
      for (std::int64_t i = 1; i < ranks_ && block_ > 1; ++i) set(base + i, member);
      return;
  }
}

}  // namespace spillway
