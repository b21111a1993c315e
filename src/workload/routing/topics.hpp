#pragma once
// Topics: what a sequence is about decides which experts it prefers, layer by layer.
#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

struct TopicKey {
  std::int64_t iteration = 0, layer = 0, topic = 0;
};

/// Which layers, experts and cliques profiles are drawn for.
struct TopicShape {
  std::int64_t layers = 0, experts = 0;
  std::int64_t experts_per_token = 1;  ///< size of a clique: see deal_tokens and expert_order
};

/// A profile's weight of expert e is exp(spread * z_e), with z standard normal over experts and 0 on average over the
/// topics, so that the corpus as a whole is even and calm imbalance comes from the mixture in a micro-batch. Experts of a
/// clique share part of their z: experts that a topic likes are chosen together. Profiles
/// drift on a great circle, z = a cos(angle) + b sin(angle), angle = 2 pi iteration / drift_period: vectors `lag`
/// iterations apart correlate with cos(2 pi lag / drift_period).
class TopicProfiles {
 public:
  static constexpr std::int64_t topics = 32;
  /// Makes the correlation 0.85 at a lag of 4,000 iterations, as measured in a training run (0.853).
  static constexpr double drift_period = 45'000;
  /// Correlation of z between experts of a clique. 1 would leave ranks even where every rank holds one of each clique.
  static constexpr double clique_correlation = 0.75;
  /// The weight of an expert whose z is 0; weights lie in [1, 1024 * even_weight].
  static constexpr std::int64_t even_weight = 1 << 16;

  TopicProfiles(std::uint64_t seed, const TopicShape& shape);

  /// What the sequence is about, in all layers.
  std::int64_t topic(std::int64_t iteration, std::int64_t sequence) const;
  /// Fixed-point weights of the experts [num_experts].
  void weights(TopicKey key, double spread, std::span<std::int64_t> out) const;

 private:
  std::uint64_t seed_;
  std::int64_t experts_;
  std::vector<float> a_, b_;  // [layers, topics, experts]
};

}  // namespace spillway
