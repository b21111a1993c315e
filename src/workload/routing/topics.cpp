#include "workload/routing/topics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.hpp"
#include "workload/routing/deal.hpp"
#include "workload/routing/purpose.hpp"

namespace spillway {
namespace {

/// Standard normals of one (layer, expert), correlated within its clique, with mean 0 over the topics.
class Column {
 public:
  explicit Column(CounterRandom random) : random_(random) {}

  /// `clique` and `expert` are unique over layers.
  const std::array<double, TopicProfiles::topics>& draw(std::int64_t clique, std::int64_t expert) {
    constexpr std::int64_t topics = TopicProfiles::topics;
    const double shared = std::sqrt(TopicProfiles::clique_correlation);
    const double own = std::sqrt(1 - TopicProfiles::clique_correlation);
    double mean = 0;
    for (std::int64_t t = 0; t < topics; ++t) {
      values_[t] =
          shared * random_.normal(2 * (clique * topics + t)) + own * random_.normal(2 * (expert * topics + t) + 1);
      mean += values_[t] / topics;
    }
    const double scale = std::sqrt(static_cast<double>(topics) / (topics - 1));  // centring shrinks the variance
    for (double& value : values_) value = scale * (value - mean);
    return values_;
  }

 private:
  CounterRandom random_;
  std::array<double, TopicProfiles::topics> values_{};
};

/// [layers, topics, experts]
std::vector<float> normals(std::uint64_t seed, int field, const TopicShape& shape) {
  constexpr std::int64_t topics = TopicProfiles::topics;
  const std::int64_t experts = shape.experts, cliques = experts / shape.experts_per_token;
  std::vector<float> table(shape.layers * topics * experts);
  Column column(CounterRandom(seed, Purpose::profile, field));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::vector<std::int32_t> order = expert_order(seed, layer, experts);
    for (std::int64_t place = 0; place < experts; ++place) {
      const auto& values = column.draw(layer * experts + place % cliques, layer * experts + order[place]);
      for (std::int64_t t = 0; t < topics; ++t) {
        table[(layer * topics + t) * experts + order[place]] = static_cast<float>(values[t]);
      }
    }
  }
  return table;
}

}  // namespace

TopicProfiles::TopicProfiles(std::uint64_t seed, const TopicShape& shape)
    : seed_(seed), experts_(shape.experts), a_(normals(seed, 0, shape)), b_(normals(seed, 1, shape)) {}

std::int64_t TopicProfiles::topic(std::int64_t iteration, std::int64_t sequence) const {
  return static_cast<std::int64_t>(CounterRandom(seed_, Purpose::topic, iteration).below(sequence, topics));
}

void TopicProfiles::weights(TopicKey key, double spread, std::span<std::int64_t> out) const {
  const double angle = 2 * std::numbers::pi * static_cast<double>(key.iteration) / drift_period;
  const double cosine = spread * std::cos(angle), sine = spread * std::sin(angle);
  const std::int64_t base = (key.layer * topics + key.topic) * experts_;
  constexpr double largest = 1024;
  for (std::int64_t e = 0; e < experts_; ++e) {
    const double weight =
        std::exp(cosine * static_cast<double>(a_[base + e]) + sine * static_cast<double>(b_[base + e]));
    out[e] = std::max<std::int64_t>(1, std::llround(std::min(weight, largest) * even_weight));
  }
}

}  // namespace spillway
