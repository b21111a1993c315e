#pragma once
// Which experts tokens choose together, and over how many nodes their choices lie.
#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

/// Counts of one layer, added up over sequences; sums of counts() over ranks are counts too.
class Coactivation {
 public:
  explicit Coactivation(std::int64_t num_experts) : experts_(num_experts), counts_(num_experts * num_experts) {}

  /// choices [tokens, k]: distinct experts of every token.
  void add(std::span<const std::int32_t> choices, std::int64_t k);
  /// [E, E]: c_ij tokens chose both i and j (symmetric); on the diagonal c_i, the tokens that chose i.
  std::span<std::int64_t> counts() { return counts_; }
  /// Mean Ochiai similarity c_ij / sqrt(c_i c_j) over the pairs i < j with c_ij > 0; 0 where there is none. A pair that
  /// met once counts as much as one that always meets, so a few exchanges among many experts already lower it.
  double ochiai_mean() const { return mean(false); }
  /// The same mean over the pairs of every token's choices, so that a pair counts as often as it met.
  double ochiai_mean_over_tokens() const { return mean(true); }

 private:
  double mean(bool weighted) const;

  std::int64_t experts_;
  std::vector<std::int64_t> counts_;
};

/// What the tokens of choices [tokens, k] need to find the nodes: `nodes` equal contiguous blocks of experts.
struct NodeBlocks {
  std::int64_t num_experts = 1;
  std::int64_t nodes = 1;  ///< divides num_experts
};

/// Mean over tokens of the number of distinct nodes that hold a token's experts; 0 without tokens.
double distinct_nodes_per_token(std::span<const std::int32_t> choices, std::int64_t k, NodeBlocks blocks);

/// The same for k experts drawn uniformly without repetition: N (1 - C(E - E/N, k) / C(E, k)).
double expected_distinct_nodes(std::int64_t k, NodeBlocks blocks);

}  // namespace spillway
