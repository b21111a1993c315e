#pragma once
// Seconds of computation, messages and copies on a machine: the only formulas of the virtual clock.
#include <span>

#include "base/units.hpp"
#include "plan/cost/machine_profile.hpp"

namespace spillway {

/// An operator takes the longer of its FLOPs at the reachable rate and its bytes at the memory rate, and at least one
/// launch. No work takes no time.
Seconds compute_seconds(const MachineProfile& machine, Flops flops, Bytes bytes);

/// Node of a rank.
constexpr int node_of(const MachineProfile& machine, int rank) { return rank / machine.ranks_per_node; }

/// All-to-all of a group: every member receives received[i] bytes, in equal parts from every member (its own included,
/// which does not travel). Traffic inside and between nodes overlaps; the slowest member sets the pace. nodes[i] is the
/// node of member i.
Seconds all_to_all_seconds(const MachineProfile& machine, std::span<const Bytes> received, std::span<const int> nodes);

/// A message to one rank: it occupies the sender's network lane for `occupied` and arrives `latency` after its end.
struct MessageSeconds {
  Seconds occupied, latency;
};
MessageSeconds message_seconds(const MachineProfile& machine, Bytes bytes, bool same_node);

/// A copy between device and host takes its bytes at the link's rate, and at least one launch. No bytes take no time.
Seconds copy_seconds(const MachineProfile& machine, Bytes bytes);

}  // namespace spillway
