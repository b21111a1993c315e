#pragma once
// Decisions as they are exported (--decisions) and read back (replay): one JSON object per line.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/policy/decision_table.hpp"
#include "plan/step_plan.hpp"
#include "run/case.hpp"

namespace spillway {

/// One decision with what it was decided from.
struct DecisionRecord {
  std::int64_t iteration = 0;
  int rank = 0, micro_batch = 0, block = 0, layer = -1;
  Decision decision;
  ExpertRows rows;  ///< of the block's experts; zero where it has none
  Budget budget;
};

/// What a plan decided in its last iteration, in the order of (micro-batch, block).
std::vector<DecisionRecord> record_decisions(const StepPlan& plan, std::int64_t iteration);

/// {"policy", "iteration", "rank", "micro_batch", "block", "layer", "rows", "budget_bytes": {forward, held, ready,
/// backward, host}, "before": {treatment: [tensors]}, "after": {...}, "tiles_per_slice"}; a tensor that is not named is
/// kept.
nlohmann::ordered_json to_json(const DecisionRecord& record, const StepPlan& plan, const std::string& policy);

/// What a file of decisions has to cover.
struct ReplayScope {
  Grid grid;
  std::int64_t iterations = 1, micro_batches = 1;
  std::vector<std::int64_t> blocks;  ///< of every stage
};
ReplayScope replay_scope(const Case& c);

/// Decisions of one rank from the lines of a file. Throws InputError, the same on every rank: with the line for what cannot
/// be read, for tensors and treatments that do not exist, and where members of an expert or tensor-parallel group would not take
/// part in the same collectives; and for the first decision that no line has. The last line about a block counts; iterations that are
/// not run may be there.
DecisionTable read_decisions(const std::string& text, const std::string& file, const ReplayScope& scope, int rank);

}  // namespace spillway
