#pragma once
// Gradients summed in rank order over the ranks that share them, beside the end of an iteration or after it; Adam on each
// rank's shards, new values gathered.
#include "plan/reduction_order.hpp"
#include "plan/step_plan.hpp"
#include "run/engine.hpp"
#include "run/lane_timer.hpp"

namespace spillway {

/// The ranks that share a group's parameters, each its shards of the optimizer state.
const device::Group& sharers(const Engine& engine, ParameterGroup group);

/// Elements of a group's flat buffers: [first, first + size).
struct ElementRange {
  std::int64_t first = 0, size = 0;
};
/// What this rank owns of a bucket, after the reduction the only part of its gradients that is summed.
ElementRange my_shard(const Engine& engine, ParameterGroup group, const Bucket& bucket);

/// False when a receive buffer of the reduction that is not held all the time exceeds the arena's cap.
bool reduction_buffers_fit(const RankElements& elements, const device::Arena& arena);

/// Sums gradients into each rank's shards. Collective over the gradient groups: all ranks of a stage make the same calls.
class GradientReducer {
 public:
  GradientReducer(Engine& engine, LaneTimer& timer, const StepPlan& plan);

  void begin_iteration() { order_.begin_iteration(); }
  /// The block's last backward pass of the iteration is being issued: from the next call on it may be reduced.
  void gradients_are_final(int block) { order_.gradients_are_final(block); }
  /// At a place for reductions (WorkStep::hides_reductions). A rank that drains exchanges what its memory holds and adds nothing up: the
  /// iteration is lost, and so are the gradients. Tells whether there was anything to do.
  bool carry_on(Seconds hides, bool draining);
  /// Where one rank's do not, none may enter `finish`: ask everywhere first.
  bool buffers_fit() const { return reduction_buffers_fit(elements_, engine_.arena); }
  /// Returns when everything issued is done.
  void settle();
  /// All that is left.
  void finish();

 private:
  struct Flight {
    float* received = nullptr;  ///< [members, elements], from all that share the group
    device::Event event;
  };
  /// Issues the exchange of a piece.
  void exchange(const ReductionStep& step);
  /// Waits for what the step before brings, and adds up.
  void sum(const ReductionStep& step);
  void label(const ReductionStep& step);
  GroupBuffers& buffers(const ReductionStep& step) { return engine_.parameters.group(step.group); }

  Engine& engine_;
  LaneTimer& timer_;
  const RankElements& elements_;
  std::span<const StageBlock> blocks_;
  ReductionOrder order_;
  std::array<Flight, parameter_group_count> flights_;
};

/// Sets every gradient to zero.
void clear_gradients(Engine& engine, LaneTimer& timer);

/// Adam on the shards, then all-gather of the values, each bucket beside Adam of the next. `step` counts from 1.
void apply_optimizer(Engine& engine, LaneTimer& timer, const TrainingOptions& training, std::int64_t step);

/// This rank's share of the job's gradient checksum: over its shards, after the reduction. Shares add up modulo 2^64.
std::uint64_t gradient_checksum(Engine& engine);
bool gradients_finite(Engine& engine);

}  // namespace spillway
