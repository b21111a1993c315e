#pragma once
// Names what a rank does, in one place for all who look on: the spans of the timeline, and the profiling regions that
// Kokkos Tools see (its connectors hand them on as NVTX, ROCTX or ITT ranges).
#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"
#include "run/lane_timer.hpp"

namespace spillway {

/// The label of an instruction for one micro-batch.
WorkLabel work_label(const Instruction& instruction, int micro_batch, const StageBlock& block);

/// While it lives, work on the timer's lanes bears the label.
class WorkScope {
 public:
  WorkScope(LaneTimer& timer, const WorkLabel& label);
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
};

}  // namespace spillway
