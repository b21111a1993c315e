#pragma once
// Activation memory of a stage over its tasks, from the dm of its operators: warm-up stacks micro-batches, steady state
// keeps their number, cool-down releases them. What lives at the borders of tasks; footprint has the peaks between.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/program/stage.hpp"
#include "plan/schedule/schedule.hpp"

namespace spillway {

struct MemoryPoint {
  int task = 0;  ///< index in the stage's order
  Bytes live;    ///< saved tensors after this task
  bool operator==(const MemoryPoint&) const = default;
};

/// Bytes that a stage keeps of one micro-batch from forward to backward under "keep everything": the sum of dm over its
/// operators. rows[i] are those of block i; read for blocks with experts only.
Bytes micro_batch_bytes(std::span<const StageBlock> blocks, std::span<const ExpertRows> rows);

/// One point per task. `saved` tells what a task's micro-batch and chunk keep; backward releases what forward added.
using SavedBytes = std::function<Bytes(const Task& task)>;
std::vector<MemoryPoint> memory_curve(std::span<const Task> order, const SavedBytes& saved);

/// A line per task: name, a bar as long as its share of the highest, MiB.
std::string memory_chart(std::span<const Task> order, std::span<const MemoryPoint> curve);

}  // namespace spillway
