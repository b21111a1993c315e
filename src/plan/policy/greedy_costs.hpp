#pragma once
// One block at one load, for which Algorithm 2 looks for mitigations: what a choice of them needs and what it costs.
#include <array>
#include <optional>

#include "plan/policy/policy.hpp"
#include "plan/program/program_cache.hpp"

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

/// Asked again and again about one problem: programs are compiled once, operators priced once.
class GreedyCosts {
 public:
  /// `index`: of the block, for the cache. All three must outlive this.
  GreedyCosts(const GreedyProblem& problem, ProgramCache& programs, int index)
      : problem_(problem), programs_(programs), index_(index) {}

  Footprint footprint(const Mitigations& m) { return compiled(m).form.at(problem_.rows); }
  /// Seconds of a block's pass that a treatment adds and nothing hides: recomputed and cast operators, and copies beyond
  /// what fits beside the block's own forward and backward pass.
  Seconds exposed(const Mitigations& m);

 private:
  const CompiledBlock& compiled(const Mitigations& m);
  Seconds again(const Instruction& i);
  Seconds whole_pass(PassKind pass);

  const GreedyProblem& problem_;
  ProgramCache& programs_;
  int index_;
  std::array<std::optional<Seconds>, op_count> again_;
  std::array<std::optional<Seconds>, 2> passes_;
};

/// GreedyCosts::exposed, asked once.
Seconds exposed_seconds(const GreedyProblem& problem, const Mitigations& mitigations);

}  // namespace spillway
