#include "workload/routing/deal.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "workload/routing/purpose.hpp"

namespace spillway {
namespace {

/// SplitMix64: a sequential stream, since one sequence draws all its numbers in a row and millions of them.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Phase 1 of deal_tokens: tokens per clique. With M the sum over cliques, expert i of clique c must not be left with
/// more rows than tokens: rows[i] - m[c] <= tokens - M, or M - m[c] <= tokens - rows[i] (m[c] = 0 for an expert of none).
std::vector<std::int64_t> whole_tokens(std::span<const std::int32_t> rows, std::span<const std::int32_t> order,
                                       std::int64_t k, std::int64_t tokens) {
  const std::int64_t cliques = static_cast<std::int64_t>(order.size()) / k, members = cliques * k;
  std::vector<std::int64_t> whole(cliques, tokens);
  for (std::int64_t p = 0; p < members; ++p) {
    whole[p % cliques] = std::min<std::int64_t>(whole[p % cliques], rows[order[p]]);
  }
  const std::int64_t sum = std::accumulate(whole.begin(), whole.end(), std::int64_t{0});
  std::int64_t numerator = 1, denominator = 1;  // the factor that the tightest expert allows
  for (std::int64_t p = 0; p < static_cast<std::int64_t>(order.size()); ++p) {
    const std::int64_t others = sum - (p < members ? whole[p % cliques] : 0), room = tokens - rows[order[p]];
    if (room * denominator < numerator * others) numerator = room, denominator = others;
  }
  for (std::int64_t& m : whole) m = m * numerator / denominator;
  return whole;
}

/// Phase 2 of deal_tokens, for the tokens of `experts` [tokens, k].
void deal_in_rounds(std::span<const std::int32_t> rows, std::span<const std::int32_t> order, std::int64_t k,
                    std::span<std::int32_t> experts) {
  const std::int64_t tokens = static_cast<std::int64_t>(experts.size()) / k;
  std::int64_t token = 0, round = 0;
  for (const std::int32_t expert : order) {
    for (std::int64_t left = rows[expert]; left > 0;) {
      const std::int64_t run = std::min(left, tokens - token);
      std::int32_t* slot = experts.data() + token * k + round;
      for (std::int64_t i = 0; i < run; ++i) slot[i * k] = expert;
      left -= run;
      token += run;
      if (token == tokens) token = 0, ++round;
    }
  }
}

/// `slots` is k, as a number or as a constant.
template <class Slots>
bool has(const std::int32_t* token, Slots slots, std::int32_t expert) {
  bool found = false;  // no early exit: k is small and the outcome hard to predict
  for (std::int64_t i = 0; i < slots; ++i) found |= token[i] == expert;
  return found;
}

template <class Slots>
void exchange(std::span<std::int32_t> experts, Slots slots, std::int64_t count, std::uint64_t seed) {
  const std::uint64_t k = slots, tokens = experts.size() / k;
  SplitMix random(seed);
  for (std::int64_t n = 0; n < count; ++n) {
    // Each half of one draw gives a token (whole part of half * tokens / 2^32) and a slot of it (from the fraction).
    const std::uint64_t draw = random.next();
    const std::uint64_t first = (draw >> 32) * tokens, second = (draw & 0xFFFFFFFFu) * tokens;
    std::int32_t* a = experts.data() + (first >> 32) * k;
    std::int32_t* b = experts.data() + (second >> 32) * k;
    std::int32_t& x = a[((first & 0xFFFFFFFFu) * k) >> 32];
    std::int32_t& y = b[((second & 0xFFFFFFFFu) * k) >> 32];
    if (!has(a, slots, y) && !has(b, slots, x)) std::swap(x, y);
  }
}

}  // namespace

std::vector<std::int32_t> expert_order(std::uint64_t seed, std::int64_t layer, std::int64_t num_experts) {
  const CounterRandom random(seed, Purpose::expert_order, layer);
  std::vector<std::int32_t> order(num_experts);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
  return order;
}

void deal_tokens(std::span<const std::int32_t> rows, std::span<const std::int32_t> order, std::int64_t k,
                 std::span<std::int32_t> experts) {
  const std::int64_t tokens = static_cast<std::int64_t>(experts.size()) / k;
  const auto cliques = static_cast<std::int64_t>(order.size()) / k;
  std::vector<std::int32_t> left(rows.begin(), rows.end());
  const std::vector<std::int64_t> whole = whole_tokens(rows, order, k, tokens);
  std::int32_t* slot = experts.data();
  for (std::int64_t clique = 0; clique < cliques; ++clique) {
    for (std::int64_t n = 0; n < whole[clique]; ++n) {
      for (std::int64_t i = 0; i < k; ++i) *slot++ = order[clique + i * cliques];
    }
    for (std::int64_t i = 0; i < k; ++i) left[order[clique + i * cliques]] -= static_cast<std::int32_t>(whole[clique]);
  }
  deal_in_rounds(left, order, k, experts.subspan(slot - experts.data()));
}

void exchange_slots(std::span<std::int32_t> experts, std::int64_t k, std::int64_t count, std::uint64_t seed) {
  const auto run = [&](auto slots) { exchange(experts, slots, count, seed); };
  switch (k) {  // the usual k as constants: twice as fast
    case 2:
      return run(std::integral_constant<std::int64_t, 2>{});
    case 4:
      return run(std::integral_constant<std::int64_t, 4>{});
    case 6:
      return run(std::integral_constant<std::int64_t, 6>{});
    case 8:
      return run(std::integral_constant<std::int64_t, 8>{});
    default:
      return run(k);
  }
}

DealtRouting::DealtRouting(const RoutingOptions& options, const RoutingProblem& problem)
    : problem_(problem),
      seed_(options.seed),
      exchanges_(std::llround(options.exchanges_per_token * static_cast<double>(problem.sequence_length))),
      orders_(problem.num_layers) {
  for (std::int64_t layer = 0; layer < problem.num_layers; ++layer) {
    orders_[layer] = expert_order(seed_, layer, problem.num_experts);
  }
}

void DealtRouting::choices(RoutingKey key, std::span<std::int32_t> experts) const {
  ensure(static_cast<std::int64_t>(experts.size()) == problem_.rows_per_sequence(),
         "choices of {} slots asked for, a sequence has {}", experts.size(), problem_.rows_per_sequence());
  std::vector<std::int32_t> rows(problem_.num_experts);
  rows_per_expert(key, rows);
  deal_tokens(rows, orders_[key.layer], problem_.num_experts_per_tok, experts);
  exchange_slots(experts, problem_.num_experts_per_tok, exchanges_,
                 mix(seed_, Purpose::exchange, key.iteration, key.layer, key.sequence));
}

}  // namespace spillway
