#pragma once
// What happened, as facts. The executor and the projector fill these records; summary and report_* read them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ledger.hpp"
#include "base/units.hpp"

namespace spillway {

/// The out-of-memory event that ended an iteration: the earliest over ranks.
struct OutOfMemory {
  std::int64_t rank = 0;      ///< rank whose cap would have been exceeded
  Seconds seconds{};          ///< from the start of the iteration to the event
  std::string operator_name;  ///< operator that asked for the block
  bool operator==(const OutOfMemory&) const = default;
};

enum class IterationEvent : unsigned char { none, oom, restart };

/// Job-wide facts of one iteration as it was run once; every rank of the job agrees on them. An iteration that is
/// redone after a restart has one record per attempt, in the order of the clock.
struct IterationRecord {
  std::int64_t index = 0;     ///< which iteration of the workload, from 0
  Seconds start{};            ///< on the job's clock, after any restart before it
  Seconds seconds{};          ///< duration on every rank; of a lost iteration with its draining
  double imbalance = 1;       ///< max over (expert group, micro-batch) of the mean over layers of max/mean rows
  double imbalance_mean = 1;  ///< mean over (expert group, micro-batch) of the same
  std::string policy;         ///< in force: the policy itself, or its fallback
  bool conservative = false;  ///< run under the fallback because of an earlier event
  bool restarted = false;     ///< a restart came right before this iteration
  std::optional<Seconds> restart_seconds_measured;  ///< of that restart; wall clock only
  std::optional<OutOfMemory> oom;                   ///< set: the iteration was lost
  std::optional<double> loss;                       ///< mean over the global batch; real data only
  std::optional<std::uint64_t> gradient_checksum;   ///< over the whole model; real data, completed iterations
  // Overload factor: rows of the most loaded rank of an expert group / balanced rows per rank, for each layer,
  // micro-batch and expert group.
  double overload_sum = 0;          ///< sum of the factors
  std::int64_t overload_count = 0;  ///< how many factors; 0 where there is no MoE layer
  double overload_max = 0;          ///< largest factor
  double overload_max_cum = 0;      ///< peak of rows in flight (forward done, backward not) / the same peak at balance

  bool completed() const { return !oom; }
  IterationEvent event() const {
    return oom ? IterationEvent::oom : restarted ? IterationEvent::restart : IterationEvent::none;
  }
  /// Time this iteration costs the job: a lost one ends at the event, as a job that dies would.
  Seconds charged_seconds() const { return oom ? oom->seconds : seconds; }
  bool operator==(const IterationRecord&) const = default;
};

/// One rank's part of the iteration at the same position of PolicyRun::iterations. Trivially copyable: ranks gather it
/// as bytes.
struct RankIteration {
  Seconds compute_seconds{};                ///< compute lane busy, mitigation included
  Seconds mitigation_seconds{};             ///< compute lane busy with, or waiting for, mitigation (recompute, copies)
  Seconds hidden_mitigation_seconds{};      ///< mitigation on other lanes while the compute lane was busy
  Seconds exposed_communication_seconds{};  ///< compute lane idle because of a collective
  Seconds all_to_all_seconds{};             ///< network lane in dispatch and combine, forward and backward
  Seconds hidden_all_to_all_seconds{};      ///< part of it while the compute lane was busy
  Seconds gradient_reduction_seconds{};     ///< network lane with gradients; the gather of parameters is not counted
  Seconds hidden_gradient_reduction_seconds{};  ///< part of it while the compute lane was busy
  Seconds overlapped_seconds{};                 ///< busy seconds of the four lanes, less the time in which any was busy
  Seconds overlappable_seconds{};               ///< the same if the lanes had all run beside the busiest
  Seconds bubble_seconds{};                     ///< compute lane idle for a pipeline neighbour
  Seconds decision_seconds{};                   ///< deciding; wall time on either clock
  Flops mitigation_flops{};                     ///< matrix products executed by mitigations (recompute)
  Flops model_flops_causal{};                   ///< model FLOPs of the rows this rank handled, causal attention
  Flops model_flops_noncausal{};                ///< the same with full attention
  Bytes cross_node_bytes{};                     ///< sent to other nodes
  Bytes intra_node_bytes{};                     ///< sent to other ranks of the node
  bool operator==(const RankIteration&) const = default;
};

/// Peaks of a ByteLedger over a run. Categories peak at different moments: they do not sum to the total.
struct PeakBytes {
  Bytes total{};
  Bytes activation{};  ///< both kinds of activations together
  std::array<Bytes, category_count> category{};

  /// Raises every peak to the ledger's (one ledger per life of the rank between restarts).
  void include(const ByteLedger& ledger) {
    total = std::max(total, ledger.peak());
    activation = std::max(activation, ledger.activation_peak());
    for (std::size_t c = 0; c < category_count; ++c) {
      category[c] = std::max(category[c], ledger.peak(static_cast<Category>(c)));
    }
  }
  bool operator==(const PeakBytes&) const = default;
};

/// The cost model's time of one iteration, and what it took: of those predicted, the one with the median error.
struct PredictedSeconds {
  Seconds predicted, spent;
};

/// One rank over a whole policy run.
struct RankRecord {
  int rank = 0;
  int pipeline = 0, data = 0, tensor = 0, expert = 0, expert_replica = 0;  ///< grid coordinates
  std::string host;  ///< node name; of a projection the modelled node
  PeakBytes peak;
  std::optional<Bytes> predicted_activation_peak;  ///< from the operator table, to compare with peak.activation
  std::optional<PredictedSeconds> predicted;
  std::optional<Bytes> reserved_bytes;    ///< backing memory of the arena
  std::optional<Bytes> peak_host_bytes;   ///< offloaded blocks, both copies in flight included
  std::vector<RankIteration> iterations;  ///< parallel to PolicyRun::iterations
};

/// One policy over the whole workload.
struct PolicyRun {
  std::string policy;
  std::optional<std::string> infeasible;    ///< why it does not fit at balance, with the arithmetic; it was not run
  std::vector<std::string> reasons;         ///< why this run is invalid; empty: valid
  std::vector<IterationRecord> iterations;  ///< in the order of the clock
  std::vector<RankRecord> ranks;            ///< ordered by rank
  std::optional<double> plan_cache_hit_rate;
  std::optional<Bytes> migration_bytes;  ///< expert weights moved by layout changes, whole job
  std::optional<double> distinct_nodes_per_token;
  std::optional<double> ochiai_mean;  ///< measured co-activation
};

}  // namespace spillway
