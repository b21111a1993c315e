#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "workload/routing/apportion.hpp"
#include "workload/routing/trace.hpp"

namespace spillway {

TraceRouting::TraceRouting(Trace trace, const RoutingOptions& options, const RoutingProblem& problem)
    : DealtRouting(options, problem), trace_(std::move(trace)) {
  const std::int64_t k = problem.num_experts_per_tok, block = problem.num_experts / Trace::blocks;
  require_input(problem.num_experts % Trace::blocks == 0,
                "routing.trace: its {} blocks of experts do not divide num_experts = {}; use a multiple of {}",
                Trace::blocks, problem.num_experts, Trace::blocks);
  for (std::int64_t iteration = 0; iteration < trace_.iterations; ++iteration) {
    for (std::int64_t layer = 0; layer < trace_.layers; ++layer) {
      const auto tokens = trace_.at(iteration, layer);
      const std::int64_t total = std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0});
      const std::int64_t most = *std::max_element(tokens.begin(), tokens.end());
      require_input(most * k <= total * std::min(k, block),
                    "routing.trace: iteration {}, layer {} puts {} of {} rows on one block, but with {} of {} experts "
                    "per block and {} distinct ones per token at most {}/{} fit; use more experts or a smaller "
                    "num_experts_per_tok",
                    iteration, layer, most, total, block, problem.num_experts, k, std::min(k, block), k);
    }
  }
}

void TraceRouting::rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const {
  const std::int64_t s = problem().sequence_length, block = problem().num_experts / Trace::blocks;
  std::int32_t block_rows[Trace::blocks];
  apportion(trace_.at(key.iteration, key.layer), {problem().rows_per_sequence(), s * block, key.sequence}, block_rows);
  const std::vector<std::int64_t> even(block, 1);
  for (std::int64_t b = 0; b < Trace::blocks; ++b) {
    apportion(even, {block_rows[b], s, key.sequence}, rows.subspan(b * block, block));
  }
}

}  // namespace spillway
