#pragma once
// The memory of one pipeline stage as a function of the expert load: by the books of the run, without running. Stages may
// hold several model chunks.
#include <memory>
#include <vector>

#include "plan/live_count.hpp"
#include "plan/step_plan.hpp"

namespace spillway {

/// What the memory of every rank of a job depends on.
struct MemorySetup {
  StageSetup stage;
  int chunks = 1;  ///< model chunks of every stage; more than one: equal layers, interleaved
  int micro_batches = 1;
  StageLimits limits{Bytes(256), Bytes(std::int64_t{1} << 60), Bytes(std::int64_t{1} << 60)};
  MachineProfile machine;
  PolicyOptions options;
  double margin = 1;  ///< load, as a multiple of balance, that static policies plan for

  ScheduleShape schedule() const { return {stage.grid.pipeline_parallel, micro_batches, chunks}; }
};

/// A stage as its ranks hold it.
struct StageLayout {
  std::vector<std::vector<StageBlock>> chunks;  ///< blocks of every model chunk, in forward order
  RankElements elements;                        ///< parameters of one rank, all chunks
  std::vector<Task> order;                      ///< 1F1B, interleaved where there are several chunks
};

/// Chunk c of stage r holds piece c x stages + r of the model's layers.
StageLayout stage_layout(const MemorySetup& setup, int stage);

/// The books of one iteration of a stage under one policy, as a function of the load. For policies that do not adapt.
class StageForecast {
 public:
  StageForecast(const MemorySetup& setup, int stage, const PolicyEntry& policy);
  /// Every MoE layer of every micro-batch receives `rows` rows on this rank.
  Books at(std::int64_t rows);
  /// What a block of a chunk was decided to do with the first micro-batch of the last forecast.
  const BlockProgram& program(int chunk, int block) const { return plans_[chunk].program(0, block); }

 private:
  StageLayout layout_;
  StageLimits limits_;
  std::vector<std::unique_ptr<Policy>> policies_;  // of every chunk: a policy prepares for the blocks it is given
  std::vector<StepPlan> plans_;
};

/// forecast_memory of a stage with several model chunks, each with a plan of its own: decisions are made chunk by chunk, the
/// books follow the stage's order. Tensors come back from the host tier just before the block that needs them.
Books forecast_chunks(std::vector<StepPlan>& plans, const StageLayout& layout, const RowsOf& rows);

/// Least bytes with which a stage can do at any load: full recompute with slices of one tile in every block. What a policy
/// that adapts needs.
Bytes least_bytes(const MemorySetup& setup, int stage);

/// Whether a stage stays within its limits, on the device and in the host tier.
bool fits(const Books& books, const StageLimits& limits);

}  // namespace spillway
