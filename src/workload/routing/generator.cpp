#include "workload/routing/generator.hpp"

#include <cmath>
#include <vector>

#include "base/random.hpp"
#include "workload/routing/apportion.hpp"
#include "workload/routing/calibrate.hpp"
#include "workload/routing/purpose.hpp"

namespace spillway {
namespace {

/// Apportions a part's rows to the experts with hot[e] == part; leaves the others alone.
void apportion_part(std::span<const std::int64_t> weights, std::span<const std::uint8_t> hot, std::uint8_t part,
                    Quota quota, std::span<std::int32_t> rows) {
  std::vector<std::int64_t> part_weights;
  part_weights.reserve(weights.size());
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (hot[e] == part) part_weights.push_back(weights[e]);
  }
  std::vector<std::int32_t> part_rows(part_weights.size());
  apportion(part_weights, quota, part_rows);
  for (std::size_t e = 0, i = 0; e < weights.size(); ++e) {
    if (hot[e] == part) rows[e] = part_rows[i++];
  }
}

}  // namespace

GeneratedRouting::GeneratedRouting(const Preset& preset, const RoutingOptions& options, const RoutingProblem& problem)
    : DealtRouting(options, problem),
      preset_(preset),
      seed_(options.seed),
      reference_(reference_grouping(options, problem)),
      units_(problem.sequences_per_iteration / reference_.sequences),
      hot_units_(std::llround(options.hot_share * static_cast<double>(units_))),
      bursts_(options.seed, options.burst_length, options.burst_fraction),
      hot_(preset, options, problem) {
  if (preset.topics) {
    profiles_.emplace(options.seed, TopicShape{problem.num_layers, problem.num_experts, problem.num_experts_per_tok});
    spread_ = calibrate_spread(*profiles_, problem, reference_, options.calm);
  }
}

std::optional<std::int64_t> GeneratedRouting::heat(std::int64_t iteration) const {
  switch (preset_.when) {
    case HotWhen::never:
      return std::nullopt;
    case HotWhen::always:
      return preset_.hot == HotSet::moving_block ? iteration : 0;
    case HotWhen::bursts:
      return bursts_.burst(iteration);
  }
  return std::nullopt;
}

bool GeneratedRouting::in_burst(std::int64_t iteration) const {
  return preset_.hot != HotSet::empty && heat(iteration).has_value();
}

bool GeneratedRouting::in_window(std::int64_t iteration, std::int64_t sequence) const {
  if (preset_.hot == HotSet::empty) return true;
  const std::uint64_t start = CounterRandom(seed_, Purpose::window).below(iteration, units_ - hot_units_ + 1);
  const std::int64_t unit = sequence / reference_.sequences - static_cast<std::int64_t>(start);
  return unit >= 0 && unit < hot_units_;
}

bool GeneratedRouting::is_hot(std::int64_t iteration, std::int64_t sequence) const {
  return heat(iteration).has_value() && in_window(iteration, sequence);
}

void GeneratedRouting::rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const {
  const std::int64_t total = problem().rows_per_sequence(), cap = problem().sequence_length;
  std::vector<std::int64_t> weights(problem().num_experts, 1);
  if (spread_ > 0) {
    profiles_->weights({key.iteration, key.layer, profiles_->topic(key.iteration, key.sequence)}, spread_, weights);
  }
  const std::optional<std::int64_t> move = heat(key.iteration);
  if (!move || !in_window(key.iteration, key.sequence)) {
    apportion(weights, {total, cap, key.sequence}, rows);
    return;
  }
  std::vector<std::uint8_t> hot(problem().num_experts);
  hot_.mark({key.layer, *move}, hot);
  const std::int64_t hot_rows = hot_.rows(key.sequence % reference_.sequences);
  apportion_part(weights, hot, 1, {hot_rows, cap, key.sequence}, rows);
  apportion_part(weights, hot, 0, {total - hot_rows, cap, key.sequence}, rows);
}

}  // namespace spillway
