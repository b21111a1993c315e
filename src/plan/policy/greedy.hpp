#pragma once
// Algorithm 2 of BaGuaLu-2: starting from keeping everything, take one mitigation after the other until the block fits.
// Its published order is the largest memory reduction first; ours the least exposed time per byte.
#include <optional>
#include <vector>

#include "plan/policy/conflicts.hpp"
#include "plan/policy/options.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {

struct GreedyProblem {
  const StageBlock& block;
  BlockRows rows;
  Budget budget;
  Bytes alignment;
  const MachineProfile& machine;
  GreedyChoice choice = GreedyChoice::ratio;
  bool quantize = false;
  bool offload = true;
  /// Tensors that must not be recomputed: what only a collective could bring back.
  TensorSet not_recomputed;
  /// What is decided already: after the gate, or by the group; nothing else where empty.
  std::optional<Mitigations> before;
  Mitigations start = Mitigations::keep_all();
};

/// One round: what was taken, whether it contradicted another consumer, and what the block then holds.
struct GreedyStep {
  std::vector<OperatorMitigation> candidate;
  Conflict conflict = Conflict::none;
  Bytes freed;  ///< what it promised
  Bytes held;   ///< after the round
};

struct GreedyResult {
  Mitigations chosen;
  bool fits = false;
  std::vector<GreedyStep> trace;
};

GreedyResult plan_greedily(const GreedyProblem& problem);

/// Seconds of a block's pass that a treatment adds and nothing hides: recomputed and cast operators, and copies beyond what
/// fits beside the block's own forward and backward pass.
Seconds exposed_seconds(const GreedyProblem& problem, const Mitigations& mitigations);

}  // namespace spillway
