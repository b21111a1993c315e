#pragma once
// The memory of one pipeline stage as a function of the expert load: by the books of the run, without running. Stages
// may hold several model chunks.
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "plan/load_bound.hpp"
#include "plan/step_plan.hpp"

namespace spillway {

/// What the memory of every rank of a job depends on.
struct MemorySetup {
  StageSetup stage;
  int micro_batches = 1;
  StageLimits limits{Bytes(256), Bytes(std::int64_t{1} << 60), Bytes(std::int64_t{1} << 60)};
  MachineProfile machine;
  std::string order = "1f1b";  ///< of work, by its name in schedule_table
  PolicyOptions options;
  double margin = 1;  ///< load, as a multiple of balance, that static policies plan for
  /// Policies that follow the load and are asked at every load; seconds for large expert groups.
  std::vector<std::string> asked;

  ScheduleShape schedule() const { return {stage.grid.pipeline_parallel, micro_batches, stage.chunks()}; }
};

/// A stage as its ranks hold it.
struct StageLayout {
  std::vector<StageBlock> blocks;
  RankElements elements;  ///< parameters of one rank
  std::vector<Task> order;
};

StageLayout stage_layout(const MemorySetup& setup, int stage);

/// Peaks of an iteration, static memory and gradient reduction included.
struct MemoryPeak {
  Bytes device, host;
  bool operator==(const MemoryPeak&) const = default;
};
bool fits(const MemoryPeak& peak, const StageLimits& limits);

/// One iteration of a stage under a policy. A policy that does not look at loads is asked once, and what it decided is
/// added up for any load; otherwise every load is an iteration of its own by forecast_memory.
class StageForecast {
 public:
  StageForecast(const MemorySetup& setup, int stage, const PolicyEntry& policy);

  /// The books when every MoE layer of every micro-batch receives `rows` rows on this rank.
  Books books(std::int64_t rows);
  /// Their peaks alone, from the footprints of blocks: many times faster.
  MemoryPeak peak(std::int64_t rows);
  /// What a block does, at the rows of the last answer, with a micro-batch in the middle of the iteration.
  const BlockProgram& program(int block) const;

 private:
  void decide(std::int64_t rows);
  BlockRows rows_of(const Item& item, std::int64_t rows) const;

  StageLayout layout_;
  std::unique_ptr<Policy> policy_;
  bool follows_load_;
  StepPlan plan_;
  std::vector<Item> script_;
  std::optional<std::int64_t> decided_;  // rows that the decisions in force are for
};

/// Whether what the policy decides depends on the load of a micro-batch: false where it always does the same, or has
/// made its whole plan before.
bool follows_load(const Policy& policy);

/// Least bytes with which a stage can do at any load: full recompute with slices of one tile in every block. What a
/// policy that adapts needs.
Bytes least_bytes(const MemorySetup& setup, int stage);

}  // namespace spillway
