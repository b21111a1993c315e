#pragma once
// Shapes and look-ups that the routing tests share.
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "workload/routing/imbalance.hpp"
#include "workload/routing/routing_source.hpp"

namespace spillway::routing_test {

/// 16 experts, top-2, 4 layers, 64 tokens, 16 sequences: four micro-batches of four sequences at four reference ranks.
inline RoutingProblem small_problem() { return {16, 2, 4, 64, 16}; }

inline RoutingOptions preset_options(const std::string& preset) {
  RoutingOptions options;
  options.preset = preset;
  return options;
}

inline std::vector<std::int32_t> rows_of(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key) {
  std::vector<std::int32_t> rows(problem.num_experts);
  source.rows_per_expert(key, rows);
  return rows;
}

inline std::vector<std::int32_t> choices_of(const RoutingSource& source, const RoutingProblem& problem,
                                            RoutingKey key) {
  std::vector<std::int32_t> experts(problem.rows_per_sequence());
  source.choices(key, experts);
  return experts;
}

/// Rows per expert of all sequences of an iteration in one layer.
inline std::vector<std::int64_t> iteration_rows(const RoutingSource& source, const RoutingProblem& problem,
                                                std::int64_t iteration, std::int64_t layer) {
  std::vector<std::int64_t> sum(problem.num_experts);
  for (std::int64_t sequence = 0; sequence < problem.sequences_per_iteration; ++sequence) {
    const auto rows = rows_of(source, problem, {iteration, layer, sequence});
    for (std::size_t e = 0; e < rows.size(); ++e) sum[e] += rows[e];
  }
  return sum;
}

inline std::vector<std::int64_t> per_rank(const std::vector<std::int64_t>& rows, std::int64_t ranks) {
  std::vector<std::int64_t> sum(ranks);
  for (std::size_t e = 0; e < rows.size(); ++e) sum[e * ranks / rows.size()] += rows[e];
  return sum;
}

inline double max_over_mean(const std::vector<std::int64_t>& rows) {
  const auto total = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  return static_cast<double>(*std::max_element(rows.begin(), rows.end())) * static_cast<double>(rows.size()) /
         static_cast<double>(total);
}

/// The message of the InputError that `action` throws; empty if it throws none.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

}  // namespace spillway::routing_test
