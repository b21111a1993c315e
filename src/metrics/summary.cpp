#include "metrics/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace spillway {
namespace {

/// A quotient, or nothing where the divisor is zero.
std::optional<double> ratio(double part, double whole) {
  return whole != 0 ? std::optional(part / whole) : std::nullopt;
}

constexpr std::array summed_seconds = {&RankIteration::compute_seconds,
                                       &RankIteration::mitigation_seconds,
                                       &RankIteration::hidden_mitigation_seconds,
                                       &RankIteration::all_to_all_seconds,
                                       &RankIteration::bubble_seconds,
                                       &RankIteration::hidden_all_to_all_seconds,
                                       &RankIteration::gradient_reduction_seconds,
                                       &RankIteration::hidden_gradient_reduction_seconds,
                                       &RankIteration::overlapped_seconds,
                                       &RankIteration::overlappable_seconds,
                                       &RankIteration::decision_seconds,
                                       &RankIteration::exposed_communication_seconds};

/// Sums over completed iterations, of one rank or of the job. FLOPs and bytes are doubles here: a job's pass 2^63.
struct Totals {
  RankIteration seconds{};  ///< only its seconds are used
  double mitigation_flops = 0, model_flops_causal = 0, model_flops_noncausal = 0;
  double cross_node_bytes = 0, intra_node_bytes = 0;

  void add_seconds(const RankIteration& part) {
    for (const auto column : summed_seconds) seconds.*column += part.*column;
  }
};

/// What both the job's and the ranks' columns need of a run.
struct Context {
  const PolicyRun& run;
  const RunFacts& facts;
  std::vector<bool> counts{};  ///< per record: its work counts
  std::optional<std::vector<Seconds>> oracle{};
  std::int64_t completed = 0;
  Seconds completed_seconds{};
  double mean_compute_seconds = 0;  ///< over ranks, in completed iterations
  std::vector<Totals> totals{};     ///< per rank
};

Totals add_up(const RankRecord& rank, const std::vector<bool>& counts) {
  Totals totals;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (!counts[i]) continue;
    const RankIteration& own = rank.iterations[i];
    totals.add_seconds(own);
    totals.mitigation_flops += static_cast<double>(own.mitigation_flops.value);
    totals.model_flops_causal += static_cast<double>(own.model_flops_causal.value);
    totals.model_flops_noncausal += static_cast<double>(own.model_flops_noncausal.value);
    totals.cross_node_bytes += static_cast<double>(own.cross_node_bytes.value);
    totals.intra_node_bytes += static_cast<double>(own.intra_node_bytes.value);
  }
  return totals;
}

Context make_context(const PolicyRun& run, const OracleReference& oracle, const RunFacts& facts) {
  ensure(facts.ranks > 0 && static_cast<std::int64_t>(run.ranks.size()) == facts.ranks,
         "policy {}: records of {} ranks in a job of {}", run.policy, run.ranks.size(), facts.ranks);
  Context c{run, facts};
  c.counts = completed_iterations(run);
  if (oracle.run) c.oracle = oracle_seconds(run, *oracle.run);
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    if (!c.counts[i]) continue;
    ++c.completed;
    c.completed_seconds += run.iterations[i].seconds;
  }
  for (const RankRecord& rank : run.ranks) {
    ensure(rank.iterations.size() == run.iterations.size(),
           "policy {}, rank {}: {} iterations recorded, the job has {}", run.policy, rank.rank, rank.iterations.size(),
           run.iterations.size());
    c.totals.push_back(add_up(rank, c.counts));
    c.mean_compute_seconds += c.totals.back().seconds.compute_seconds.value / static_cast<double>(facts.ranks);
  }
  return c;
}

/// Facts that hold for the job and for each of its ranks alike.
Summary shared_columns(const Context& c, const OracleReference& oracle) {
  Summary s;
  std::vector<Seconds> times;
  Seconds measured;
  std::int64_t measurements = 0, conservative = 0;
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    const IterationRecord& iteration = c.run.iterations[i];
    if (c.counts[i]) times.push_back(iteration.seconds);
    if (c.counts[i] && iteration.conservative) ++conservative;
    if (iteration.restart_seconds_measured) {
      measured += *iteration.restart_seconds_measured;
      ++measurements;
    }
  }
  s.iteration_seconds = distribution(std::move(times));
  s.restarts = count_restarts(c.run);
  s.restart_seconds = c.facts.restart_seconds;
  if (measurements > 0) s.restart_seconds_measured = Seconds(measured.value / static_cast<double>(measurements));
  s.conservative_iterations = conservative;
  s.peak_source = c.facts.peak_source;
  if (c.oracle) {
    s.oracle = oracle.source;
  } else {
    s.oracle_reason =
        oracle.run ? "the oracle did not complete every iteration that this run completed" : oracle.reason;
  }
  return s;
}

std::optional<double> restart_equivalents(const LostSeconds& lost, Seconds restart_seconds) {
  const auto total = lost.total();
  return total ? ratio(total->value, restart_seconds.value) : std::nullopt;
}

/// Columns that follow from what `ranks` ranks together did in the completed iterations.
void set_sums(Summary& s, const Context& c, const Totals& totals, double ranks) {
  const RankIteration& sum = totals.seconds;
  s.exposed_communication_seconds = Seconds(sum.exposed_communication_seconds.value / ranks);
  s.decision_seconds = Seconds(sum.decision_seconds.value / ranks);
  s.hidden_mitigation =
      ratio(sum.hidden_mitigation_seconds.value, (sum.hidden_mitigation_seconds + sum.mitigation_seconds).value);
  s.hidden_all_to_all = ratio(sum.hidden_all_to_all_seconds.value, sum.all_to_all_seconds.value);
  s.hidden_gradient_reduction =
      ratio(sum.hidden_gradient_reduction_seconds.value, sum.gradient_reduction_seconds.value);
  s.overlap_efficiency = ratio(sum.overlapped_seconds.value, sum.overlappable_seconds.value);
  s.bubble_fraction = ratio(sum.bubble_seconds.value, c.completed_seconds.value * ranks);
  s.cross_node_bytes = totals.cross_node_bytes;
  s.intra_node_bytes = totals.intra_node_bytes;
  if (totals.model_flops_causal == 0) return;
  const double capacity = c.completed_seconds.value * ranks * c.facts.peak_flops;
  s.model_flops = totals.model_flops_causal;
  s.mfu_causal = ratio(totals.model_flops_causal, capacity);
  s.mfu_noncausal = ratio(totals.model_flops_noncausal, capacity);
  s.hfu_causal = ratio(totals.model_flops_causal + totals.mitigation_flops, capacity);
}

Summary rank_columns(const Context& c, std::size_t r, const Summary& shared) {
  const RankRecord& rank = c.run.ranks[r];
  Summary s = shared;
  set_sums(s, c, c.totals[r], 1);
  s.oom_events = std::count_if(c.run.iterations.begin(), c.run.iterations.end(),
                               [&](const IterationRecord& i) { return i.oom && i.oom->rank == rank.rank; });
  s.lost_seconds = split_lost_seconds(c.run, rank, c.oracle, c.facts.restart_seconds);
  s.restart_equivalent_cost = restart_equivalents(s.lost_seconds, c.facts.restart_seconds);
  s.rank_imbalance = ratio(c.totals[r].seconds.compute_seconds.value, c.mean_compute_seconds);
  s.peak = rank.peak;
  if (rank.predicted_activation_peak) {
    const Bytes error = *rank.predicted_activation_peak - rank.peak.activation;
    s.predicted_activation_error =
        ratio(static_cast<double>(error.value), static_cast<double>(rank.peak.activation.value));
  }
  if (rank.predicted) {
    const auto& [predicted, spent] = *rank.predicted;
    s.predicted_seconds_error = ratio((predicted - spent).value, spent.value);
  }
  s.reserved_bytes = rank.reserved_bytes;
  s.peak_host_bytes = rank.peak_host_bytes;
  return s;
}

/// The value of the rank where it is largest by `size`; empty unless some rank has it.
template <class T, class Size>
std::optional<T> worst_over(const std::vector<Summary>& ranks, std::optional<T> Summary::*column, Size size) {
  std::optional<T> worst;
  for (const Summary& rank : ranks) {
    const std::optional<T>& value = rank.*column;
    if (value && (!worst || size(*value) > size(*worst))) worst = value;
  }
  return worst;
}

/// The job's loss: ranks differ only in how their own mitigation and waiting divide, so these two are means.
LostSeconds mean_lost_seconds(const std::vector<Summary>& ranks) {
  LostSeconds mean = ranks[0].lost_seconds;
  for (const auto part : {&LostSeconds::exposed_mitigation, &LostSeconds::waiting}) {
    if (!(mean.*part)) continue;
    double sum = 0;
    for (const Summary& rank : ranks) sum += (rank.lost_seconds.*part)->value;
    mean.*part = Seconds(sum / static_cast<double>(ranks.size()));
  }
  return mean;
}

void set_worst(Summary& s, const std::vector<Summary>& ranks) {
  const auto magnitude = [](double v) { return std::abs(v); };
  const auto bytes = [](Bytes b) { return b.value; };
  s.predicted_activation_error = worst_over(ranks, &Summary::predicted_activation_error, magnitude);
  s.predicted_seconds_error = worst_over(ranks, &Summary::predicted_seconds_error, magnitude);
  s.rank_imbalance = worst_over(ranks, &Summary::rank_imbalance, magnitude);
  s.reserved_bytes = worst_over(ranks, &Summary::reserved_bytes, bytes);
  s.peak_host_bytes = worst_over(ranks, &Summary::peak_host_bytes, bytes);
  s.peak = PeakBytes{};
  for (const Summary& rank : ranks) {
    s.peak->total = std::max(s.peak->total, rank.peak->total);
    s.peak->activation = std::max(s.peak->activation, rank.peak->activation);
    for (std::size_t k = 0; k < category_count; ++k) {
      s.peak->category[k] = std::max(s.peak->category[k], rank.peak->category[k]);
    }
  }
}

/// Facts of the job that no rank has alone.
void set_job_facts(Summary& s, const Context& c) {
  double overload = 0, largest = 0, cumulative = 0;
  std::int64_t factors = 0;
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    if (!c.counts[i]) continue;
    const IterationRecord& iteration = c.run.iterations[i];
    overload += iteration.overload_sum;
    factors += iteration.overload_count;
    largest = std::max(largest, iteration.overload_max);
    cumulative = std::max(cumulative, iteration.overload_max_cum);
    if (!iteration.loss) continue;
    if (!s.loss_first) s.loss_first = iteration.loss;
    s.loss_last = iteration.loss;
  }
  if (factors > 0) {
    s.overload_avg = overload / static_cast<double>(factors);
    s.overload_max = largest;
    s.overload_max_cum = cumulative;
  }
  s.oom_events = std::count_if(c.run.iterations.begin(), c.run.iterations.end(),
                               [](const IterationRecord& i) { return i.oom.has_value(); });
  s.plan_cache_hit_rate = c.run.plan_cache_hit_rate;
  s.migration_bytes = c.run.migration_bytes;
  s.distinct_nodes_per_token = c.run.distinct_nodes_per_token;
  s.ochiai_mean = c.run.ochiai_mean;
}

double completed_tokens(const Context& c) {
  return static_cast<double>(c.facts.tokens_per_iteration) * static_cast<double>(c.completed);
}

Summary job_columns(const Context& c, const Summary& shared, const std::vector<Summary>& ranks) {
  Summary s = shared;
  Totals totals;
  for (const Totals& rank : c.totals) {
    totals.add_seconds(rank.seconds);
    totals.mitigation_flops += rank.mitigation_flops;
    totals.cross_node_bytes += rank.cross_node_bytes;
    totals.intra_node_bytes += rank.intra_node_bytes;
  }
  totals.model_flops_causal = completed_tokens(c) * c.facts.model_flops_per_token_causal;
  totals.model_flops_noncausal = completed_tokens(c) * c.facts.model_flops_per_token_noncausal;
  set_sums(s, c, totals, static_cast<double>(c.facts.ranks));
  set_worst(s, ranks);
  set_job_facts(s, c);
  s.lost_seconds = mean_lost_seconds(ranks);
  s.restart_equivalent_cost = restart_equivalents(s.lost_seconds, c.facts.restart_seconds);
  return s;
}

std::optional<FiguresOfMerit> figures_of_merit(const Context& c) {
  const double time = all_seconds(c.run, c.facts.restart_seconds).value;
  if (c.completed == 0 || !(time > 0)) return std::nullopt;
  const double flops_per_second = completed_tokens(c) * c.facts.model_flops_per_token_causal / time;
  FiguresOfMerit fom;
  fom.tokens_per_second = completed_tokens(c) / time;
  fom.effective_mfu = flops_per_second / (static_cast<double>(c.facts.ranks) * c.facts.peak_flops);
  fom.effective_tflops = flops_per_second / 1e12;
  if (c.oracle) {
    Seconds oracle;
    for (const Seconds seconds : *c.oracle) oracle += seconds;
    fom.provisioning_efficiency = oracle.value / time;
  }
  return fom;
}

}  // namespace

std::optional<Distribution> distribution(std::vector<Seconds> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto percentile = [&](std::size_t percent) { return values[(percent * values.size() + 99) / 100 - 1]; };
  Seconds sum;
  for (const Seconds value : values) sum += value;
  const Seconds mean(sum.value / static_cast<double>(values.size()));
  return Distribution{mean, percentile(50), percentile(95), values.back()};
}

void withhold_figures(Evaluation& evaluation) {
  evaluation.fom.reset();
  const auto withhold = [](Summary& s) {
    for (const auto column : {&Summary::mfu_causal, &Summary::mfu_noncausal, &Summary::hfu_causal}) (s.*column).reset();
  };
  withhold(evaluation.job);
  for (Summary& rank : evaluation.ranks) withhold(rank);
}

Evaluation evaluate(const PolicyRun& run, const OracleReference& oracle, const RunFacts& facts) {
  Evaluation result;
  if (run.infeasible) return result;
  const Context context = make_context(run, oracle, facts);
  const Summary shared = shared_columns(context, oracle);
  for (std::size_t r = 0; r < run.ranks.size(); ++r) result.ranks.push_back(rank_columns(context, r, shared));
  result.job = job_columns(context, shared, result.ranks);
  result.fom = figures_of_merit(context);
  if (!run.reasons.empty()) withhold_figures(result);
  return result;
}

}  // namespace spillway
