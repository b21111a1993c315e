#include "plan/schedule/interleaving_cache.hpp"

#include <array>
#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spillway {
namespace {

constexpr int steps_per_octave = 16;
constexpr std::int16_t zero_step = INT16_MIN;

/// 2^(n/32), n < 32, by square roots and products, which IEEE arithmetic rounds alike everywhere.
const std::array<double, 2 * steps_per_octave> half_steps = [] {
  double ratio = 2;
  for (int n = 2 * steps_per_octave; n > 1; n /= 2) ratio = std::sqrt(ratio);
  std::array<double, 2 * steps_per_octave> powers{1};
  for (std::size_t n = 1; n < powers.size(); ++n) powers[n] = powers[n - 1] * ratio;
  return powers;
}();

std::int16_t step_of(Seconds seconds) {
  if (seconds == Seconds(0)) return zero_step;
  int exponent = 0;
  const double m = 2 * std::frexp(seconds.value, &exponent);  // in [1, 2)
  int step = 0;
  for (std::size_t n = 1; n < half_steps.size(); n += 2) step += m >= half_steps[n];
  return static_cast<std::int16_t>(steps_per_octave * exponent + step);
}

Seconds seconds_of(std::int16_t step) {
  if (step == zero_step) return Seconds(0);
  const int exponent = (step - (step & (steps_per_octave - 1))) / steps_per_octave;
  return Seconds(std::ldexp(half_steps[2 * static_cast<std::size_t>(step & (steps_per_octave - 1))], exponent - 1));
}

}  // namespace

DualBatch discretized(const DualBatch& batch) {
  DualBatch result = batch;
  for (auto& chain : result.chains)
    for (Segment& s : chain) s.seconds = seconds_of(step_of(s.seconds));
  return result;
}

std::size_t InterleavingCache::Hash::operator()(const Key& key) const {
  std::uint64_t h = 0;
  for (const std::uint32_t word : key) h = (std::rotl(h, 5) ^ word) * 0x9E3779B97F4A7C15u;
  return mix(h);
}

const FusedPlan& InterleavingCache::operator()(const DualBatch& operators) {
  validate(operators);
  key_.clear();
  const auto factor = std::bit_cast<std::uint64_t>(operators.interference);
  key_.insert(key_.end(), {static_cast<std::uint32_t>(factor), static_cast<std::uint32_t>(factor >> 32)});
  for (const auto& chain : operators.chains) {
    key_.push_back(static_cast<std::uint32_t>(chain.size()));
    for (const Segment& s : chain) {
      ensure(s.needs < (1 << 14), "an offload needs {} operators of the forward chain: at most 16383", s.needs);
      key_.push_back(static_cast<std::uint32_t>(static_cast<std::uint16_t>(step_of(s.seconds))) << 16 |
                     static_cast<std::uint32_t>(s.needs) << 2 | static_cast<std::uint32_t>(s.lane));
    }
  }
  ++counts_.lookups;
  if (const auto known = plans_.find(key_); known != plans_.end()) {
    ++counts_.hits;
    return known->second;
  }
  Compaction compaction = compact(discretized(operators), options_.compaction);
  Interleaving interleaving = interleaver_(compaction.batch);
  if (plans_.size() >= options_.capacity) plans_.clear();
  return plans_.emplace(key_, FusedPlan{std::move(compaction), std::move(interleaving)}).first->second;
}

}  // namespace spillway
