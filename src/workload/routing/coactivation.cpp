#include "workload/routing/coactivation.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spillway {

void Coactivation::add(std::span<const std::int32_t> choices, std::int64_t k) {
  for (std::size_t first = 0; first < choices.size(); first += k) {
    for (const std::int32_t i : choices.subspan(first, k)) {
      for (const std::int32_t j : choices.subspan(first, k)) ++counts_[i * experts_ + j];
    }
  }
}

double Coactivation::mean(bool weighted) const {
  double sum = 0, weights = 0;
  for (std::int64_t i = 0; i < experts_; ++i) {
    for (std::int64_t j = i + 1; j < experts_; ++j) {
      const auto both = static_cast<double>(counts_[i * experts_ + j]);
      if (both == 0) continue;
      const double weight = weighted ? both : 1.0;
      sum += weight * both /
             std::sqrt(static_cast<double>(counts_[i * experts_ + i]) * static_cast<double>(counts_[j * experts_ + j]));
      weights += weight;
    }
  }
  return weights > 0 ? sum / weights : 0.0;
}

double distinct_nodes_per_token(std::span<const std::int32_t> choices, std::int64_t k, NodeBlocks blocks) {
  ensure(blocks.nodes >= 1 && blocks.num_experts % blocks.nodes == 0, "{} experts in {} equal blocks",
         blocks.num_experts, blocks.nodes);
  const std::int64_t block = blocks.num_experts / blocks.nodes;
  std::vector<std::int64_t> last_token(blocks.nodes, -1);  // the last token that counted the node
  std::int64_t distinct = 0;
  const auto tokens = static_cast<std::int64_t>(choices.size()) / k;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (const std::int32_t expert : choices.subspan(token * k, k)) {
      std::int64_t& last = last_token[expert / block];
      distinct += last != token;
      last = token;
    }
  }
  return tokens > 0 ? static_cast<double>(distinct) / static_cast<double>(tokens) : 0.0;
}

double expected_distinct_nodes(std::int64_t k, NodeBlocks blocks) {
  const std::int64_t experts = blocks.num_experts, others = experts - experts / blocks.nodes;
  double missed = 1;  // C(others, k) / C(experts, k): no choice lies on a given node
  for (std::int64_t i = 0; i < k; ++i) {
    missed *= static_cast<double>(std::max<std::int64_t>(0, others - i)) / static_cast<double>(experts - i);
  }
  return static_cast<double>(blocks.nodes) * (1 - missed);
}

}  // namespace spillway
