#pragma once
// The facts of `spillway plan`: what a case asks of every rank, by arithmetic alone. As text and as JSON.
#include <string>
#include <vector>

#include "app/option_table.hpp"
#include "plan/memory_table.hpp"
#include "plan/treatment.hpp"

namespace spillway::app {

/// What does not depend on policy and load.
struct StaticFacts {
  std::int64_t layers = 0;
  int live_pairs = 0;                  ///< (micro-batch, chunk) pairs in flight at most
  double live_micro_batches = 0;       ///< the same in whole micro-batches
  std::int64_t dense = 0, expert = 0;  ///< parameters of one rank
  Bytes parameters, gradients, optimizer;
  Bytes communication;  ///< receive buffers of overlapped gradient reductions
  Bytes total() const { return parameters + gradients + optimizer + communication; }
};

/// What a policy does with the tensors of one layer, at consecutive loads that it treats alike.
struct TreatmentFacts {
  std::string policy;
  bool follows_load = false;  ///< otherwise it does the same at every load
  double load_from = 1, load_to = 1;
  std::vector<TensorTreatment> tensors;  ///< bytes at load_from
};

/// A layer that stands for the others: the first with experts, or the first of a dense model.
struct LayerPlace {
  int stage = 0, block = 0;
  StageBlock layer{BlockKind::dense, -1, {}};
};
LayerPlace typical_layer(const MemorySetup& setup);

/// What a policy does with the tensors of that layer, for a micro-batch in the middle of an iteration in which all have
/// `load` x balance. Empty for a policy that the forecast cannot ask (PolicyPeaks::no_forecast).
std::vector<TensorTreatment> chosen_treatments(const MemorySetup& setup, const PolicyPeaks& policy, double load);

struct PlanReport {
  const Case* planned = nullptr;
  std::vector<std::string> warnings;
  MemorySetup setup;
  ParameterCount parameters;
  std::int64_t active = 0;  ///< parameters that a token passes through
  TokenFlops token_flops;
  std::vector<StaticFacts> stages;
  StageBlock layer{BlockKind::dense, -1, {}};  ///< whose tensors the treatments name
  std::vector<TreatmentFacts> treatments;
  MemoryTable memory;
  std::size_t balance = 0, margin = 0;  ///< indices in memory.axis.loads

  /// Empty where nothing is known.
  std::optional<bool> fits(const PolicyPeaks& policy, int stage, std::size_t load) const;
  std::optional<bool> fits(const PolicyPeaks& policy, std::size_t load) const;  ///< on every stage
  /// Load at which memory for `rows` rows ends: the least that no longer fits. Empty: never, whatever the router does.
  std::optional<double> stops_at(std::optional<std::int64_t> rows_that_fit) const;
  /// Model FLOPs of an iteration, causal, and the seconds that all ranks need for them at their peak.
  double iteration_flops() const;
  Seconds seconds_at_peak() const;
};

/// Plans a case that has passed validate_without_workload; `c` must outlive the report. `choices`: the case's policies
/// that follow the load are asked at every load, which takes seconds where expert groups are large.
PlanReport make_plan(const Case& c, std::vector<std::string> warnings, bool choices = false);

std::string plan_text(const PlanReport& report);
/// Format "spillway-plan-1": docs/plan.md.
Json plan_json(const PlanReport& report);

}  // namespace spillway::app
