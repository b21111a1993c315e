#pragma once
// Totals first, then tokens: the choices of a sequence's tokens from its rows per expert.
#include <cstdint>
#include <span>
#include <vector>

#include "workload/routing/routing_source.hpp"

namespace spillway {

/// The seeded order of experts in a layer that cliques are made of; it stays over iterations.
std::vector<std::int32_t> expert_order(std::uint64_t seed, std::int64_t layer, std::int64_t num_experts);

/// Deals rows to tokens, as far as the totals allow in cliques: with C = E / k (rounded down), the k experts order[c],
/// order[c + C], order[c + 2C] ... are clique c.
/// 1. Clique c gets whole tokens, one for every row its least loaded member has, scaled down (all cliques alike) until no
///    expert is left with more rows than there are tokens left.
/// 2. The other rows, experts in the given order and each as often as it has rows left, form one sequence of s' * k slots
///    for the s' tokens left, dealt in k rounds: slot p goes to token p mod s' as its choice p / s'. The slots of a token
///    are s' apart or more, those of an expert lie within (rows left) <= s' consecutive places, so no token gets an
///    expert twice.
/// Dealing all rows as in 2 would do the same for even totals; with uneven ones the rounds shift against each other and
/// cliques dissolve. rows [E] sums to s * k, none above s; order [E] is a permutation; experts [s, k] is filled.
void deal_tokens(std::span<const std::int32_t> rows, std::span<const std::int32_t> order, std::int64_t k,
                 std::span<std::int32_t> experts);

/// `count` times: two seeded slots, of any two tokens, exchange their experts unless a token would get one twice. Column
/// sums stay. experts [s, k].
void exchange_slots(std::span<std::int32_t> experts, std::int64_t k, std::int64_t count, std::uint64_t seed);

/// The part all sources share.
class DealtRouting : public RoutingSource {
 public:
  DealtRouting(const RoutingOptions& options, const RoutingProblem& problem);
  void choices(RoutingKey key, std::span<std::int32_t> experts) const final;

 protected:
  const RoutingProblem& problem() const { return problem_; }

 private:
  RoutingProblem problem_;
  std::uint64_t seed_;
  std::int64_t exchanges_;                         ///< per sequence
  std::vector<std::vector<std::int32_t>> orders_;  ///< of experts, per layer
};

}  // namespace spillway
