#include "workload/routing/calibrate.hpp"

#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.hpp"
#include "workload/routing/apportion.hpp"

namespace spillway {
namespace {

constexpr std::int64_t max_sampled_units = 64;  // micro-batches of an iteration
constexpr double largest_spread = 4;            // e^4: an expert one sigma above the mean gets 55 times its share

/// Expected maximum of n standard normals (Gumbel's limit; within 0.03 for n >= 64).
double expected_maximum(double n) {
  const double a = std::sqrt(2 * std::log(n));
  return a - (std::log(std::log(n)) + std::log(4 * std::numbers::pi)) / (2 * a) + 0.5772 / a;
}

class CalmSample {
 public:
  CalmSample(const TopicProfiles& profiles, const RoutingProblem& problem, const Grouping& grouping)
      : profiles_(profiles),
        problem_(problem),
        grouping_(grouping),
        units_(problem.sequences_per_iteration / grouping.sequences),
        sampled_(std::min(units_, max_sampled_units)),
        iterations_(std::clamp<std::int64_t>(16384 / (problem.num_layers * TopicProfiles::topics), 8, 64)),
        table_(problem.num_layers * TopicProfiles::topics * grouping.ranks) {}

  /// Mean over the sample iterations of their imbalance.
  double imbalance(double spread) {
    double sum = 0;
    for (std::int64_t i = 0; i < iterations_; ++i)
      sum += iteration_imbalance(i * calibration_span / iterations_, spread);
    return sum / static_cast<double>(iterations_);
  }

 private:
  /// Rows per rank of a sequence of every topic in every layer: table_ [layers, topics, ranks].
  void fill_table(std::int64_t iteration, double spread) {
    std::fill(table_.begin(), table_.end(), 0);
    std::vector<std::int64_t> weights(problem_.num_experts);
    std::vector<std::int32_t> rows(problem_.num_experts);
    std::int64_t* row = table_.data();
    for (std::int64_t layer = 0; layer < problem_.num_layers; ++layer) {
      for (std::int64_t topic = 0; topic < TopicProfiles::topics; ++topic, row += grouping_.ranks) {
        profiles_.weights({iteration, layer, topic}, spread, weights);
        apportion(weights, {problem_.rows_per_sequence(), problem_.sequence_length, topic}, rows);
        add_rows_per_rank(rows, {row, static_cast<std::size_t>(grouping_.ranks)});
      }
    }
  }

  double iteration_imbalance(std::int64_t iteration, double spread) {
    fill_table(iteration, spread);
    double max = 0, sum = 0, squares = 0;
    std::int64_t count = 0;
    for (std::int64_t unit = 0; unit < sampled_; ++unit) {
      for (std::int64_t layer = 0, stage = 0; stage < grouping_.stages; ++stage) {
        const double value = stage_imbalance({iteration, unit, stage}, layer);
        max = std::max(max, value);
        sum += value;
        squares += value * value;
        ++count;
      }
    }
    if (sampled_ == units_) return max;
    const auto n = static_cast<double>(count);
    const double deviation = std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
    return max + deviation * (expected_maximum(static_cast<double>(units_ * grouping_.stages)) - expected_maximum(n));
  }

  struct Unit {
    std::int64_t iteration, index, stage;
  };
  /// `layer` enters as the first layer of the stage and leaves as the first of the next.
  double stage_imbalance(Unit unit, std::int64_t& layer) {
    const std::int64_t ranks = grouping_.ranks;
    rows_.clear();
    for (; layer < problem_.num_layers && layer * grouping_.stages / problem_.num_layers == unit.stage; ++layer) {
      rows_.resize(rows_.size() + ranks, 0);
      std::int64_t* sum = rows_.data() + rows_.size() - ranks;
      for (std::int64_t i = 0; i < grouping_.sequences; ++i) {
        const std::int64_t topic = profiles_.topic(unit.iteration, unit.index * grouping_.sequences + i);
        const std::int64_t* row = table_.data() + (layer * TopicProfiles::topics + topic) * ranks;
        for (std::int64_t r = 0; r < ranks; ++r) sum[r] += row[r];
      }
    }
    return unit_imbalance(rows_, ranks);
  }

  const TopicProfiles& profiles_;
  const RoutingProblem& problem_;
  Grouping grouping_;
  std::int64_t units_, sampled_, iterations_;
  std::vector<std::int64_t> table_, rows_;
};

}  // namespace

double calibrate_spread(const TopicProfiles& profiles, const RoutingProblem& problem, const Grouping& grouping,
                        double calm) {
  if (calm <= 1) return 0;
  CalmSample sample(profiles, problem, grouping);
  const auto excess = [&](double spread) { return sample.imbalance(spread) - calm; };
  // 1. Bracket: no spread at all is even.
  double low = 0, low_excess = 1 - calm;
  double high = 0.25, high_excess = excess(high);
  while (high_excess < 0 && high < largest_spread) {
    low = high, low_excess = high_excess;
    high *= 2, high_excess = excess(high);
  }
  require_input(high_excess >= 0,
                "routing.calm = {}: topics with nothing in common reach {:.3f} at {} reference ranks with {} experts, "
                "{} per token and {} sequences in a micro-batch of a reference group; ask for less, or for fewer "
                "reference_sequences",
                calm, calm + high_excess, grouping.ranks, problem.num_experts, problem.num_experts_per_tok,
                grouping.sequences);
  // 2. False position, halving the value of an end that stays (Illinois).
  for (int step = 0, side = 0; step < 20; ++step) {
    const double middle = low + (high - low) * low_excess / (low_excess - high_excess);
    const double value = excess(middle);
    if (std::abs(value) < 0.002 * (calm - 1)) return middle;
    if (value < 0) {
      low = middle, low_excess = value;
      if (side == -1) high_excess /= 2;
      side = -1;
    } else {
      high = middle, high_excess = value;
      if (side == 1) low_excess /= 2;
      side = 1;
    }
  }
  return low;
}

}  // namespace spillway
