#pragma once
// From records to figures: pure arithmetic over a PolicyRun. A value that does not apply is empty (JSON null), never 0.
#include <optional>
#include <string>
#include <vector>

#include "metrics/lost_seconds.hpp"
#include "metrics/step_record.hpp"

namespace spillway {

/// What the figures of every policy of a case share.
struct RunFacts {
  std::int64_t tokens_per_iteration = 0;    ///< whole job
  double model_flops_per_token_causal = 0;  ///< forward and backward
  double model_flops_per_token_noncausal = 0;
  double peak_flops = 0;    ///< FLOP/s of one rank
  std::string peak_source;  ///< "machine file NAME" or "measured"
  std::int64_t ranks = 0;
  Seconds restart_seconds{};  ///< charged for each restart, alike on both clocks
};

/// The oracle a run is compared with: keep without a cap, over the same routing.
struct OracleReference {
  const PolicyRun* run = nullptr;  ///< null: none could be had
  std::string source;              ///< "run" or "projected"
  std::string reason;              ///< why there is none
};

/// Figures of merit; only a valid and feasible run with a completed iteration has them. Time is all time: completed and
/// lost iterations and the charged restarts.
struct FiguresOfMerit {
  double tokens_per_second = 0;                   ///< tokens of completed iterations / all time
  double effective_mfu = 0;                       ///< model FLOPs (causal) of those tokens / (all time * ranks * peak)
  double effective_tflops = 0;                    ///< the same FLOPs / all time, whole job, in 10^12 FLOP/s
  std::optional<double> provisioning_efficiency;  ///< time of the oracle / all time
};

struct Distribution {
  Seconds mean{}, p50{}, p95{}, max{};
};
/// Mean, maximum and nearest-rank percentiles (each one a value that occurred); empty for no values.
std::optional<Distribution> distribution(std::vector<Seconds> values);

/// One column of the report, for the job or for one rank. Sums and means run over completed iterations. For the job,
/// seconds are means over ranks, fractions those of the ranks' sums, bytes sent are sums, peaks and errors the worst
/// rank's. Facts that exist only for the job (loss, overload, co-activation, migration) are empty for a rank.
struct Summary {
  std::optional<double> mfu_causal, mfu_noncausal;  ///< model FLOPs / (time of completed iterations * peak)
  std::optional<double> hfu_causal;                 ///< model and recomputed FLOPs / the same
  std::optional<double> model_flops;                ///< causal, of completed iterations; a double: 10^23 occurs
  std::optional<Distribution> iteration_seconds;    ///< of completed iterations
  std::optional<std::int64_t> oom_events;           ///< of a rank: those it raised
  std::optional<std::int64_t> restarts;
  std::optional<Seconds> restart_seconds;           ///< charged for one restart
  std::optional<Seconds> restart_seconds_measured;  ///< mean of the measured ones
  std::optional<double> restart_equivalent_cost;    ///< lost seconds / restart_seconds
  std::optional<std::string> oracle, oracle_reason, peak_source;
  LostSeconds lost_seconds;
  std::optional<std::int64_t> conservative_iterations;
  std::optional<Seconds> exposed_communication_seconds, decision_seconds;
  std::optional<double> hidden_mitigation, hidden_all_to_all, hidden_gradient_reduction;  ///< share of lanes' seconds
  std::optional<double> overlap_efficiency;  ///< overlapped / overlappable seconds of the lanes
  std::optional<double> bubble_fraction;     ///< compute lane waiting for a pipeline neighbour / time
  std::optional<double> plan_cache_hit_rate;
  std::optional<double> predicted_activation_error;          ///< (predicted - measured) / measured
  std::optional<double> predicted_seconds_error;             ///< (predicted - spent) / spent, median iteration
  std::optional<double> cross_node_bytes, intra_node_bytes;  ///< sent; doubles: a job's sums pass 2^63
  std::optional<Bytes> migration_bytes;
  std::optional<double> distinct_nodes_per_token, ochiai_mean;
  std::optional<double> overload_avg, overload_max, overload_max_cum;
  std::optional<double> rank_imbalance;  ///< busy compute seconds: max over ranks (a rank: its own) / mean
  std::optional<PeakBytes> peak;
  std::optional<Bytes> peak_host_bytes, reserved_bytes;
  std::optional<double> loss_first, loss_last;
};

struct Evaluation {
  std::optional<FiguresOfMerit> fom;
  Summary job;
  std::vector<Summary> ranks;  ///< parallel to PolicyRun::ranks
};

/// Removes the figures of merit and the utilizations: they must not be read from an invalid run or report.
void withhold_figures(Evaluation& evaluation);

/// All figures of one run. An infeasible run has none; an invalid one keeps its diagnostics but has no figure of merit
/// and no MFU. Throws InternalError when the records contradict each other (a rank without its iterations).
Evaluation evaluate(const PolicyRun& run, const OracleReference& oracle, const RunFacts& facts);

}  // namespace spillway
