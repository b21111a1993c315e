#pragma once
// Which piece of the gradients is reduced when. Executor and projection follow it; the same on every rank of a stage.
#include <vector>

#include "plan/reduction_places.hpp"

namespace spillway {

/// A piece of a bucket is exchanged between the ranks that share it, or its parts are added up in rank order.
struct ReductionStep {
  enum class Kind : unsigned char { exchange, sum } kind;
  ParameterGroup group;
  Bucket bucket;
  std::int64_t at = 0, elements = 0;  ///< the piece, in every shard of the bucket
};

/// One iteration at a time. A group has one receive buffer, so a piece is summed before the next one is exchanged.
///
/// Overlapped reductions are free of deadlock. They couple ranks that the schedule alone does not: those of one stage in
/// different columns (data- and tensor-parallel coordinates). But what decides when they are issued, `gradients_are_final`
/// and `carry_on`, comes at places that the order of blocks and tasks alone fixes, in the backward passes after a stage's
/// last forward (WorkOrder), where all columns do the same blocks in the same order. In every communicator the order of
/// messages and of these places is therefore the same on all members, whatever each rank recomputes or copies between
/// them. So the messages of one column, which have an order in which all can come (find_deadlock proves it for the
/// schedule), have it for all columns together: each carries out its next place when the others do. A rank that has lost
/// the iteration goes on exchanging pieces of the same sizes.
class ReductionOrder {
 public:
  ReductionOrder(RankElements elements, const MachineProfile& machine);

  void begin_iteration();
  /// The last backward pass of the block has been issued. Where reductions do not overlap, nothing follows from it.
  void gradients_are_final(int block);
  /// At a place for reductions: what was exchanged last is summed, and as much exchanged as `seconds` of computation hide
  /// by the machine's figures, so that the messages behind are not kept waiting.
  std::vector<ReductionStep> carry_on(Seconds seconds);
  /// All that is left, when the last backward pass has been issued; blocks not named so far, last to first. Where
  /// reductions do not overlap, group by group.
  std::vector<ReductionStep> finish();

 private:
  struct Queue {
    std::vector<Bucket> waiting;        ///< in the order of becoming final
    std::size_t next = 0;               ///< of waiting
    std::int64_t at = 0;                ///< in it
    std::vector<ReductionStep> flying;  ///< exchanged and not yet summed: one or none
  };
  void add(std::size_t group, int block);
  bool idle(std::size_t group) const;
  /// The next step of a group, at most one of each kind; exchanges at most `elements` of a shard.
  void advance(std::size_t group, std::int64_t elements, std::vector<ReductionStep>& steps);

  RankElements elements_;
  MachineProfile machine_;
  std::array<Queue, parameter_group_count> queues_;
  std::vector<bool> is_final_;  ///< [block]
};

}  // namespace spillway
