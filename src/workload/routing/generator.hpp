#pragma once
// Synthetic routing: topics, hot windows, bursts (every preset but trace).
#include <optional>

#include "workload/routing/bursts.hpp"
#include "workload/routing/deal.hpp"
#include "workload/routing/hot_experts.hpp"
#include "workload/routing/imbalance.hpp"
#include "workload/routing/topics.hpp"

namespace spillway {

class GeneratedRouting final : public DealtRouting {
 public:
  /// Options must have passed validate(). Calibrates the topics (preset burst): see calibrate_spread.
  GeneratedRouting(const Preset& preset, const RoutingOptions& options, const RoutingProblem& problem);

  void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const override;
  bool in_burst(std::int64_t iteration) const override;
  /// True where the sequence lies in the iteration's hot window.
  bool is_hot(std::int64_t iteration, std::int64_t sequence) const;

 private:
  /// The number of the burst, or what moves a moving block; nullopt in calm iterations.
  std::optional<std::int64_t> heat(std::int64_t iteration) const;
  bool in_window(std::int64_t iteration, std::int64_t sequence) const;

  Preset preset_;
  std::uint64_t seed_;
  Grouping reference_;
  std::int64_t units_, hot_units_;  ///< micro-batches of reference groups per iteration; those that are hot
  BurstSchedule bursts_;
  HotExperts hot_;
  std::optional<TopicProfiles> profiles_;
  double spread_ = 0;
};

}  // namespace spillway
