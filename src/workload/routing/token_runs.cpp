#include "workload/routing/token_runs.hpp"

#include <algorithm>

namespace spillway {

std::vector<TokenRun> token_runs(std::int64_t sequence, std::int64_t length, std::int64_t first, std::int64_t count) {
  std::vector<TokenRun> runs;
  for (std::int64_t at = first; at < first + count;) {
    const std::int64_t in_sequence = at % length, n = std::min(length - in_sequence, first + count - at);
    runs.push_back({sequence + at / length, in_sequence, n});
    at += n;
  }
  return runs;
}

std::vector<std::int32_t> choices_of(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key,
                                     const std::vector<TokenRun>& runs) {
  const std::int64_t k = problem.num_experts_per_tok;
  std::vector<std::int32_t> choices, of_sequence(static_cast<std::size_t>(problem.rows_per_sequence()));
  for (const TokenRun& run : runs) {
    key.sequence = run.sequence;
    source.choices(key, of_sequence);
    const auto begin = of_sequence.begin() + run.first * k;
    choices.insert(choices.end(), begin, begin + run.count * k);
  }
  return choices;
}

std::vector<std::int64_t> rows_of(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key,
                                  const std::vector<TokenRun>& runs) {
  std::vector<std::int64_t> sum(static_cast<std::size_t>(problem.num_experts));
  std::vector<std::int32_t> rows(sum.size());
  for (const TokenRun& run : runs) {
    if (run.count < problem.sequence_length) {
      for (const std::int32_t expert : choices_of(source, problem, key, {run})) ++sum[static_cast<std::size_t>(expert)];
      continue;
    }
    key.sequence = run.sequence;
    source.rows_per_expert(key, rows);
    for (std::size_t e = 0; e < rows.size(); ++e) sum[e] += rows[e];
  }
  return sum;
}

}  // namespace spillway
