#include "run/load_source.hpp"

namespace spillway {

const GateTable& LoadSource::table(std::int64_t iteration, int rank, const StageBlock& block, int micro_batch) {
  if (iteration != iteration_) tables_.clear();
  iteration_ = iteration;
  const Coordinates here = grid_.coordinates(rank);
  const auto [at, is_new] = tables_.try_emplace({block.layer, micro_batch, here.expert_replica});
  GateTable& t = at->second;
  if (!is_new) return t;
  const std::int64_t experts = case_.model.num_experts, size = case_.training.micro_batch_size;
  t = {std::vector<std::int64_t>(static_cast<std::size_t>(grid_.expert() * experts)), grid_.expert(), experts};
  std::vector<std::int32_t> rows(static_cast<std::size_t>(experts));
  for (int member = 0; member < grid_.expert(); ++member) {
    const int data = grid_.coordinates(grid_.expert_rank(here.pipeline, here.expert_replica, member)).data;
    for (std::int64_t j = 0; j < size; ++j) {
      const std::int64_t sequence = (std::int64_t{micro_batch} * grid_.data() + data) * size + j;
      routing_.rows_per_expert({iteration, block.layer, sequence}, rows);
      for (std::int64_t e = 0; e < experts; ++e)
        t.rows[static_cast<std::size_t>(member * experts + e)] += rows[static_cast<std::size_t>(e)];
    }
  }
  return t;
}

}  // namespace spillway
