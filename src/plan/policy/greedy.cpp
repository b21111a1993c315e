#include "plan/policy/greedy.hpp"

#include <algorithm>

#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

GreedyProblem referring_to(const StageBlock& block, const MachineProfile& machine, const GreedyProblem& p) {
  return {block,      p.rows,    p.budget,         p.alignment, machine, p.choice,
          p.quantize, p.offload, p.not_recomputed, p.before,    p.start};
}

bool allowed(const GreedyProblem& p, Tensor t, Treatment treatment) {
  switch (treatment) {
    case Treatment::recompute:
      return t != Tensor::block_input && !p.not_recomputed.contains(t);
    case Treatment::offload:
      return p.offload && !p.machine.shared_memory;
    case Treatment::quantize:
      return p.quantize && extent(t, p.block.context, {}).bytes_per_element == p.block.context.shape.bytes_per_element;
    default:
      return false;
  }
}

Bytes freed_by(const GreedyProblem& p, Tensor t, Treatment treatment) {
  const Extent e = extent(t, p.block.context, p.rows.whole);
  const Bytes plain = round_up(e.bytes(), p.alignment);
  return treatment == Treatment::quantize ? plain - round_up(quantized_bytes(e.elements()), p.alignment) : plain;
}

}  // namespace

GreedyPath::GreedyPath(const GreedyProblem& problem, ProgramCache& programs, int index)
    : block_(problem.block),
      machine_(problem.machine),
      problem_(referring_to(block_, machine_, problem)),
      costs_(problem_, programs, index),
      assignment_(block_.kind, block_.context) {
  for (const Tensor t : assignment_.tensors())
    if (problem_.start.of(t) == Treatment::keep) add_candidates(t);
  stands_.push_back({problem_.start, costs_.footprint(problem_.start), {}});
}

/// Every operator's mitigations of a tensor it reads in backward, and where several read it all of theirs together.
void GreedyPath::add_candidates(Tensor t) {
  const std::vector<Op> consumers = assignment_.consumers(t);
  for (const Treatment treatment : {Treatment::recompute, Treatment::offload, Treatment::quantize}) {
    const Bytes freed = freed_by(problem_, t, treatment);
    if (!allowed(problem_, t, treatment) || freed.value <= 0) continue;
    std::vector<OperatorMitigation> all;
    for (const Op op : consumers) {
      all.push_back({op, t, treatment});
      candidates_.push_back({{all.back()}, freed});
    }
    if (consumers.size() > 1) candidates_.push_back({all, freed});
  }
}

bool GreedyPath::satisfied(const Footprint& f, const Budget& budget) const {
  return problem_.before ? fits_after_gate(f, budget) : fits(f, budget);
}

GreedyPath::End GreedyPath::within(const Budget& budget) {
  std::size_t rounds = 0;
  while (!satisfied(stands_[rounds].footprint, budget))
    if (++rounds == stands_.size() && !next_round()) return {stands_.back().chosen, false, rounds - 1};
  Stand& stand = stands_[rounds];
  const bool gives_back = problem_.choice == GreedyChoice::ratio;
  return {gives_back ? give_back(stand, budget) : stand.chosen, true, rounds};
}

/// False where nothing is left to take.
bool GreedyPath::next_round() {
  Candidate* best = next_candidate();
  if (best == nullptr) return false;
  best->open = false;
  const Conflict conflict = assignment_.conflict(best->uses);
  Stand stand{stands_.back().chosen, stands_.back().footprint, {}};
  if (conflict == Conflict::none) {
    assignment_.apply(best->uses);
    stand.chosen.set(best->tensor(), best->treatment());
    stand.footprint = costs_.footprint(stand.chosen);
  }
  trace_.push_back({best->uses, conflict, best->freed, stand.footprint.held});
  stands_.push_back(std::move(stand));
  return true;
}

/// The open candidate that is to be tried next, or null.
GreedyPath::Candidate* GreedyPath::next_candidate() {
  const Mitigations& now = stands_.back().chosen;
  const double exposed = problem_.choice == GreedyChoice::ratio ? costs_.exposed(now).value : 0;
  Candidate* best = nullptr;
  const Candidate* valued = nullptr;
  double best_value = 0, value = 0;
  for (Candidate& c : candidates_) {
    if (!c.open || now.of(c.tensor()) != Treatment::keep) continue;
    // What several consumers could do with a tensor comes in a row, at the same price.
    if (valued == nullptr || valued->tensor() != c.tensor() || valued->treatment() != c.treatment())
      value = value_of(c, exposed);
    valued = &c;
    if (best != nullptr && value <= best_value) continue;
    best = &c;
    best_value = value;
  }
  return best;
}

/// Bytes freed, or seconds per byte turned round: `exposed` are those of what is chosen so far.
double GreedyPath::value_of(const Candidate& c, double exposed) {
  if (problem_.choice != GreedyChoice::ratio) return static_cast<double>(c.freed.value);
  Mitigations then = stands_.back().chosen;
  then.set(c.tensor(), c.treatment());
  return -((costs_.exposed(then).value - exposed) / static_cast<double>(c.freed.value));
}

const std::vector<Tensor>& GreedyPath::gains(Stand& stand) {
  if (stand.gains) return *stand.gains;
  std::vector<std::pair<double, Tensor>> mitigated;
  const double exposed = costs_.exposed(stand.chosen).value;
  for (const Tensor t : assignment_.tensors()) {
    if (problem_.start.of(t) != Treatment::keep || stand.chosen.of(t) == Treatment::keep) continue;
    Mitigations without = stand.chosen;
    without.set(t, Treatment::keep);
    const double gain = exposed - costs_.exposed(without).value;
    if (gain > 0) mitigated.emplace_back(gain, t);
  }
  std::stable_sort(mitigated.begin(), mitigated.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  stand.gains.emplace();
  for (const auto& [gain, t] : mitigated) stand.gains->push_back(t);
  return *stand.gains;
}

/// Gives tensors back as long as the block still fits, the most expensive first.
Mitigations GreedyPath::give_back(Stand& stand, const Budget& budget) {
  Mitigations chosen = stand.chosen;
  for (const Tensor t : gains(stand)) {
    Mitigations without = chosen;
    without.set(t, Treatment::keep);
    if (satisfied(costs_.footprint(without), budget)) chosen = without;
  }
  return chosen;
}

GreedyResult plan_greedily(const GreedyProblem& p) {
  ProgramCache programs;
  GreedyPath path(p, programs, 0);
  const GreedyPath::End end = path.within(p.budget);
  const auto& trace = path.trace();
  return {end.chosen, end.fits, {trace.begin(), trace.begin() + static_cast<std::ptrdiff_t>(end.rounds)}};
}

}  // namespace spillway
