#pragma once
// The part of a decision that an expert group takes together: whether rows are dispatched again in backward, and in how
// many slices. A pure function of the gate table and the offers, so that every member finds the same.
#include "plan/policy/policy.hpp"
#include "plan/program/program_cache.hpp"

namespace spillway {

struct GroupChoice {
  bool dispatch_again = false;       ///< what came through a collective may be recomputed
  std::int64_t tiles_per_slice = 0;  ///< 0: the whole dispatch at once
  bool operator==(const GroupChoice&) const = default;
};

/// Tensors that only a collective of the expert group can bring back.
TensorSet collective_tensors(const BlockContext& context);

/// The least that a member can do under a choice: what only a collective can bring back stays on the device or, with
/// `offloads`, in the host tier.
Mitigations least_under(const GroupChoice& choice, const BlockContext& context, bool offloads);

/// The same of a block: what it holds for its tensor-parallel group stays on the device.
Mitigations least_under(const GroupChoice& choice, const StageBlock& block, bool offloads);

/// Chooses the fewest collectives under which the most constrained member still fits, giving up all else.
class GroupChooser {
 public:
  GroupChoice choose(const Situation& situation);

 private:
  struct Group;
  bool fits_all(const GroupChoice& choice, const Group& group);
  bool fits_member(const GroupChoice& choice, const Situation& situation, const Offer& offer, const BlockRows& rows);
  ProgramCache programs_;
};

}  // namespace spillway
