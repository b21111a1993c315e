#pragma once
// Algorithm 2 of BaGuaLu-2: starting from keeping everything, take one mitigation after the other until the block fits.
// Its published order is the largest memory reduction first; ours the least exposed time per byte.
#include <vector>

#include "plan/policy/conflicts.hpp"
#include "plan/policy/greedy_costs.hpp"

namespace spillway {

/// One round: what was taken, whether it contradicted another consumer, and what the block then holds.
struct GreedyStep {
  std::vector<OperatorMitigation> candidate;
  Conflict conflict = Conflict::none;
  Bytes freed;  ///< what it promised
  Bytes held;   ///< after the round
};

/// The rounds of a problem. A budget decides where they end, not what they take: so they are worked out once for all
/// budgets, as far as one was needed.
class GreedyPath {
 public:
  /// Keeps what the problem refers to; its budget is not read. `programs` must outlive this.
  GreedyPath(const GreedyProblem& problem, ProgramCache& programs, int index);
  GreedyPath(const GreedyPath&) = delete;
  GreedyPath& operator=(const GreedyPath&) = delete;

  struct End {
    Mitigations chosen;
    bool fits = false;
    std::size_t rounds = 0;  ///< of trace()
  };
  End within(const Budget& budget);
  const std::vector<GreedyStep>& trace() const { return trace_; }

 private:
  /// A mitigation that may still be taken.
  struct Candidate {
    std::vector<OperatorMitigation> uses;
    Bytes freed;
    bool open = true;
    Tensor tensor() const { return uses.front().tensor; }
    Treatment treatment() const { return uses.front().treatment; }
  };
  /// After a round; the first is before all.
  struct Stand {
    Mitigations chosen;
    Footprint footprint;
    /// What was mitigated and would gain time by being given back, the most expensive first; empty until it is asked for.
    std::optional<std::vector<Tensor>> gains;
  };

  void add_candidates(Tensor t);
  bool next_round();
  Candidate* next_candidate();
  double value_of(const Candidate& c, double exposed);
  bool satisfied(const Footprint& f, const Budget& budget) const;
  const std::vector<Tensor>& gains(Stand& stand);
  Mitigations give_back(Stand& stand, const Budget& budget);

  StageBlock block_;
  MachineProfile machine_;
  GreedyProblem problem_;
  GreedyCosts costs_;
  Assignment assignment_;
  std::vector<Candidate> candidates_;
  std::vector<Stand> stands_;
  std::vector<GreedyStep> trace_;
};

struct GreedyResult {
  Mitigations chosen;
  bool fits = false;
  std::vector<GreedyStep> trace;
};

/// One problem within its budget.
GreedyResult plan_greedily(const GreedyProblem& problem);

}  // namespace spillway
