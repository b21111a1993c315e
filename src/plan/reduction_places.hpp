#pragma once
// Where in the backward pass of a block the reductions of gradients of other blocks are issued, and how much fits there.
#include "plan/cost/machine_profile.hpp"
#include "plan/program/buckets.hpp"

namespace spillway {

/// Computation of a block's backward pass at balanced load that no message of the block interrupts, from each of its places
/// on. With experts these lie behind the first message of rows (combine) and behind the last (dispatch), so that the network
/// has been given what the block waits for; elsewhere before the block, and there is no second. The same on all ranks of a
/// stage: of the shape alone.
struct ReductionPlaces {
  Seconds first, second;
};
ReductionPlaces reduction_places(const StageBlock& block, const MachineProfile& machine);

/// Elements of every shard that the ranks of a group can exchange in `seconds`.
std::int64_t elements_exchanged(const GroupElements& group, const MachineProfile& machine, Seconds seconds);
/// Seconds in which they exchange so many.
Seconds exchange_seconds(const GroupElements& group, const MachineProfile& machine, std::int64_t elements);

}  // namespace spillway
