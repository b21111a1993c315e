#include "run/load_source.hpp"

#include <algorithm>

namespace spillway {

std::vector<TokenRun> tokens_of(const Case& c, const Coordinates& at, int micro_batch) {
  const std::int64_t size = c.training.micro_batch_size, length = c.training.sequence_length;
  const std::int64_t tokens = size * length / c.grid.tensor_parallel;
  return token_runs((std::int64_t{micro_batch} * c.grid.data_parallel + at.data) * size, length, at.tensor * tokens,
                    tokens);
}

const GateTable& LoadSource::table(std::int64_t iteration, int rank, const StageBlock& block, int micro_batch) {
  if (iteration != iteration_) tables_.clear();
  iteration_ = iteration;
  const Coordinates here = grid_.coordinates(rank);
  const auto [at, is_new] = tables_.try_emplace({block.layer, micro_batch, here.expert_replica});
  GateTable& t = at->second;
  if (!is_new) return t;
  const RoutingProblem problem = routing_problem(case_);
  t = {{}, grid_.expert(), problem.num_experts};
  for (int member = 0; member < grid_.expert(); ++member) {
    const Coordinates there = grid_.coordinates(grid_.expert_rank(here.pipeline, here.expert_replica, member));
    const auto rows = rows_of(routing_, problem, {iteration, block.layer, 0}, tokens_of(case_, there, micro_batch));
    t.rows.insert(t.rows.end(), rows.begin(), rows.end());
  }
  return t;
}

}  // namespace spillway
