#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "workload/routing/apportion.hpp"
#include "workload/routing/hot_experts.hpp"
#include "workload/routing/imbalance.hpp"

namespace spillway {
namespace {

void check_problem(const RoutingProblem& p) {
  const auto positive = [](const char* name, std::int64_t value) {
    require_input(value >= 1 && value <= std::int64_t{1} << 31, "{} = {}: must lie in [1, 2^31]", name, value);
  };
  positive("num_experts", p.num_experts);
  positive("num_experts_per_tok", p.num_experts_per_tok);
  positive("num_hidden_layers", p.num_layers);
  positive("sequence_length", p.sequence_length);
  positive("global batch (sequences per iteration)", p.sequences_per_iteration);
  require_input(p.num_experts_per_tok <= p.num_experts,
                "num_experts_per_tok = {} exceeds num_experts = {}: a token chooses distinct experts",
                p.num_experts_per_tok, p.num_experts);
  // Fixed-point weights reach 2^26 and meet rows and experts in one 63-bit product.
  require_input(p.num_experts <= max_apportioned_members && p.sequence_length <= std::int64_t{1} << 24 &&
                    p.num_experts * p.rows_per_sequence() <= std::int64_t{1} << 36,
                "routing takes num_experts <= 65536, sequence_length <= 2^24 and num_experts x sequence_length x "
                "num_experts_per_tok <= 2^36, here {} x {} x {}",
                p.num_experts, p.sequence_length, p.num_experts_per_tok);
}

void check_reference(const RoutingOptions& o, const RoutingProblem& p) {
  const std::int64_t experts = p.num_experts, batch = p.sequences_per_iteration;
  const auto nearest_divisors = [](std::int64_t wanted, std::int64_t of) {
    std::int64_t below = std::clamp<std::int64_t>(wanted, 1, of), above = below;
    while (of % below != 0) --below;
    while (of % above != 0) ++above;
    return below == above ? fmt::format("{}", below) : fmt::format("{} or {}", below, above);
  };
  require_input(o.reference_ranks >= 1 && experts % o.reference_ranks == 0,
                "routing.reference_ranks = {} does not divide num_experts = {} (a hot block is num_experts / "
                "reference_ranks experts); nearest: {}",
                o.reference_ranks, experts, nearest_divisors(o.reference_ranks, experts));
  require_input(o.reference_sequences == 0 || (o.reference_sequences > 0 && batch % o.reference_sequences == 0),
                "routing.reference_sequences = {} does not divide the global batch of {} sequences; nearest: {}, or 0 "
                "to derive it from reference_ranks",
                o.reference_sequences, batch, nearest_divisors(o.reference_sequences, batch));
  require_input(o.reference_stages >= 1 && o.reference_stages <= p.num_layers,
                "routing.reference_stages = {}: must lie in [1, {}], the number of layers", o.reference_stages,
                p.num_layers);
}

void check_ranges(const RoutingOptions& o) {
  const auto within = [](const char* name, double value, double least, double most) {
    require_input(value >= least && value <= most, "routing.{} = {}: must be a number in [{}, {}]", name, value, least,
                  most);  // a comparison with NaN is false
  };
  within("calm", o.calm, 1, 1e6);
  within("peak", o.peak, 1, 1e6);
  within("burst_fraction", o.burst_fraction, 0, 1);
  within("hot_share", o.hot_share, 0, 1);
  within("exchanges_per_token", o.exchanges_per_token, 0, 1e4);
  require_input(
      o.burst_length >= 1 && o.burst_length <= 1'000'000'000,
      "routing.burst_length = {}: a burst has at least 1 iteration (and at most 10^9); set burst_fraction = 0 "
      "for no bursts",
      o.burst_length);
  require_input(o.burst_fraction == 0 || o.burst_fraction >= 1e-9,
                "routing.burst_fraction = {}: below 10^-9; set 0 for no bursts", o.burst_fraction);
}

void check_bound(const char* name, double value, const RoutingOptions& o, const RoutingProblem& p) {
  const double bound = rank_imbalance_bound(p, o.reference_ranks);
  const std::int64_t block = p.num_experts / o.reference_ranks, k = p.num_experts_per_tok;
  require_input(
      value <= bound,
      "routing.{} = {} is more than {} distinct experts per token allow: a rank with {} of {} experts gets at "
      "most min({}, {}) of a token's {} rows, so max/mean over {} ranks is at most {} x {} / {} = {}; ask for "
      "at most that",
      name, value, k, block, p.num_experts, k, block, k, o.reference_ranks, o.reference_ranks, std::min(k, block), k,
      bound);
}

/// Some micro-batch of a reference group must be hot.
void check_window(const RoutingOptions& o, const RoutingProblem& p) {
  const std::int64_t units = p.sequences_per_iteration / reference_grouping(o, p).sequences;
  require_input(
      std::llround(o.hot_share * static_cast<double>(units)) >= 1,
      "routing.hot_share = {} selects no sequence: {} of {} micro-batches of {} sequences rounds to 0; ask for "
      "at least {}, or choose preset = 'balanced'",
      o.hot_share, o.hot_share * static_cast<double>(units), units, p.sequences_per_iteration / units,
      0.5 / static_cast<double>(units));
}

void check_hot_experts_preset(const RoutingOptions& o, const RoutingProblem& p) {
  const std::int64_t block = p.num_experts / o.reference_ranks;
  const double bound = std::min(static_cast<double>(block),
                                static_cast<double>(p.num_experts) / static_cast<double>(p.num_experts_per_tok));
  require_input(
      o.peak <= bound,
      "routing.peak = {} is too much for one hot expert per rank with even ranks: an expert takes at most all "
      "rows of its rank's {} experts (x {}) and one row of every token (x {} / {}), so at most {}; ask for "
      "at most that, or for fewer reference_ranks",
      o.peak, block, block, p.num_experts, p.num_experts_per_tok, bound);
}

void check_empty_preset(const Preset& preset, const RoutingOptions& o, const RoutingProblem& p) {
  const std::int64_t empty = HotExperts(preset, o, p).count();
  require_input(p.num_experts - empty >= p.num_experts_per_tok,
                "routing.preset = 'empty' leaves {} - {} = {} experts with tokens ({} reference ranks), fewer than "
                "num_experts_per_tok = {}; use more experts or reference ranks",
                p.num_experts, empty, p.num_experts - empty, o.reference_ranks, p.num_experts_per_tok);
}

}  // namespace

void validate(const RoutingOptions& options, const RoutingProblem& problem) {
  const Preset& preset = find_preset(options.preset);
  check_problem(problem);
  check_ranges(options);
  check_reference(options, problem);
  require_input(!preset.recorded || !options.trace.empty(),
                "routing.preset = 'trace' needs routing.trace, a CSV file of recorded loads");
  require_input(preset.recorded || options.trace.empty(),
                "routing.trace = '{}' is read by preset = 'trace' only; set that preset or leave trace out",
                options.trace);
  if (preset.topics) check_bound("calm", options.calm, options, problem);
  if (preset.when == HotWhen::never || (preset.when == HotWhen::bursts && options.burst_fraction == 0)) return;
  if (preset.hot == HotSet::empty) return check_empty_preset(preset, options, problem);
  if (preset.hot == HotSet::one_per_block) {
    check_hot_experts_preset(options, problem);
  } else {
    check_bound("peak", options.peak, options, problem);
  }
  require_input(!preset.topics || options.peak >= options.calm, "routing.peak = {} is below routing.calm = {}",
                options.peak, options.calm);
  check_window(options, problem);
}

}  // namespace spillway
