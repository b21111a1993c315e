#include "plan/policy/greedy.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "plan/cost/operator_cost.hpp"
#include "plan/cost/time_model.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

BlockProgram program_of(const GreedyProblem& p, const Mitigations& m) {
  const Mitigations before = p.before.value_or(m);
  return compile(p.block.kind, p.block.context, {before, m, static_cast<int>(p.rows.slices.size())});
}

Footprint footprint_of(const GreedyProblem& p, const Mitigations& m) {
  return footprint(program_of(p, m), footprint_setting(p.block.kind, p.block.context, p.alignment), p.rows);
}

bool satisfied(const GreedyProblem& p, const Footprint& f) {
  return p.before ? fits_after_gate(f, p.budget) : fits(f, p.budget);
}

/// A mitigation that may still be taken.
struct Candidate {
  std::vector<OperatorMitigation> uses;
  Bytes freed;
  bool open = true;
  Tensor tensor() const { return uses.front().tensor; }
  Treatment treatment() const { return uses.front().treatment; }
};

Bytes freed_by(const GreedyProblem& p, Tensor t, Treatment treatment) {
  const Extent e = extent(t, p.block.context, p.rows.whole);
  const Bytes plain = round_up(e.bytes(), p.alignment);
  return treatment == Treatment::quantize ? plain - round_up(quantized_bytes(e.elements()), p.alignment) : plain;
}

/// Every operator's mitigations of every tensor it reads in backward, and of tensors with several consumers all of theirs
/// together.
std::vector<Candidate> candidates(const GreedyProblem& p, const Assignment& assignment) {
  std::vector<Candidate> list;
  for (const Tensor t : assignment.tensors()) {
    if (p.start.of(t) != Treatment::keep) continue;
    for (const Treatment treatment : {Treatment::recompute, Treatment::offload, Treatment::quantize}) {
      const bool never =
          (treatment == Treatment::recompute && (t == Tensor::block_input || p.not_recomputed.contains(t))) ||
          (treatment == Treatment::offload && (!p.offload || p.machine.shared_memory)) ||
          (treatment == Treatment::quantize && (!p.quantize || extent(t, p.block.context, {}).bytes_per_element !=
                                                                   p.block.context.shape.bytes_per_element));
      const Bytes freed = freed_by(p, t, treatment);
      if (never || freed.value <= 0) continue;
      const std::vector<Op> consumers = assignment.consumers(t);
      std::vector<OperatorMitigation> all;
      for (const Op op : consumers) {
        all.push_back({op, t, treatment});
        list.push_back({{all.back()}, freed});
      }
      if (consumers.size() > 1) list.push_back({all, freed});
    }
  }
  return list;
}

CostSituation cost_situation(const GreedyProblem& p, const ExpertRows& rows) {
  return {p.machine, p.block.kind, p.block.context, rows, {}};
}

/// exposed_seconds of one problem again and again: operators are priced once.
class Exposure {
 public:
  explicit Exposure(const GreedyProblem& p) : problem_(p) {}

  Seconds operator()(const Mitigations& m) {
    const GreedyProblem& p = problem_;
    const BlockProgram program = program_of(p, m);
    Seconds exposed, out;
    const auto bytes_of = [&](Tensor t) { return bytes(t, p.block.context, p.rows.whole); };
    for (const Instruction& i : program.forward) {
      if (i.action == Action::offload) out += copy_seconds(p.machine, bytes_of(i.subject));
      if (i.action == Action::quantize) {
        const Bytes small = quantized_bytes(extent(i.subject, p.block.context, p.rows.whole).elements());
        exposed += 2.0 * compute_seconds(p.machine, {}, bytes_of(i.subject) + small);
      }
    }
    for (const Instruction& i : program.backward)
      if (i.recompute) exposed += again(i);
    if (out.value == 0) return exposed;
    exposed += std::max(Seconds(0), out - whole_pass(PassKind::forward));
    exposed += std::max(Seconds(0), out - whole_pass(PassKind::backward));
    // What is hidden slows down what it hides beside: out in forward, back in backward.
    exposed += 2.0 * (p.machine.interference - 1) * out;
    return exposed;
  }

 private:
  Seconds again(const Instruction& i) {
    const auto price = [&] {
      return operator_cost(cost_situation(problem_, problem_.rows.of(i)), i.op, PassKind::forward).total();
    };
    if (i.slice >= 0) return price();
    const auto found = again_.find(i.op);
    return found != again_.end() ? found->second : again_.emplace(i.op, price()).first->second;
  }
  Seconds whole_pass(PassKind pass) {
    std::optional<Seconds>& seconds = passes_[pass == PassKind::forward ? 0 : 1];
    if (!seconds) seconds = block_cost(cost_situation(problem_, problem_.rows.whole), pass).total();
    return *seconds;
  }

  const GreedyProblem& problem_;
  std::map<Op, Seconds> again_;
  std::array<std::optional<Seconds>, 2> passes_;
};

/// Index of the open candidate that is to be tried next, or -1.
class Chooser {
 public:
  Chooser(const GreedyProblem& p, std::vector<Candidate>& list, Exposure& exposure)
      : problem_(p), list_(list), exposure_(exposure) {}

  int next(const Mitigations& current) {
    int best = -1;
    double best_value = 0, value = 0;
    const bool ratio = problem_.choice == GreedyChoice::ratio;
    const double exposed = ratio ? exposure_(current).value : 0;
    const Candidate* valued = nullptr;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Candidate& c = list_[i];
      if (!c.open || current.of(c.tensor()) != Treatment::keep) continue;
      // What several consumers could do with a tensor comes in a row, at the same price.
      if (valued == nullptr || valued->tensor() != c.tensor() || valued->treatment() != c.treatment())
        value = ratio ? -seconds_per_byte(c, current, exposed) : static_cast<double>(c.freed.value);
      valued = &c;
      if (best >= 0 && value <= best_value) continue;
      best = static_cast<int>(i);
      best_value = value;
    }
    return best;
  }

 private:
  double seconds_per_byte(const Candidate& c, Mitigations m, double exposed) const {
    m.set(c.tensor(), c.treatment());
    return (exposure_(m).value - exposed) / static_cast<double>(c.freed.value);
  }
  const GreedyProblem& problem_;
  std::vector<Candidate>& list_;
  Exposure& exposure_;
};

/// Gives tensors back as long as the block still fits, the most expensive first.
void give_back(const GreedyProblem& p, const Assignment& assignment, Exposure& exposure, Mitigations& chosen) {
  std::vector<std::pair<double, Tensor>> mitigated;
  const double exposed = exposure(chosen).value;
  for (const Tensor t : assignment.tensors()) {
    if (p.start.of(t) != Treatment::keep || chosen.of(t) == Treatment::keep) continue;
    Mitigations without = chosen;
    without.set(t, Treatment::keep);
    mitigated.emplace_back(exposed - exposure(without).value, t);
  }
  std::stable_sort(mitigated.begin(), mitigated.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [gain, t] : mitigated) {
    Mitigations without = chosen;
    without.set(t, Treatment::keep);
    if (gain > 0 && satisfied(p, footprint_of(p, without))) chosen = without;
  }
}

}  // namespace

Seconds exposed_seconds(const GreedyProblem& p, const Mitigations& m) { return Exposure(p)(m); }

GreedyResult plan_greedily(const GreedyProblem& p) {
  Assignment assignment(p.block.kind, p.block.context);
  std::vector<Candidate> list = candidates(p, assignment);
  Exposure exposure(p);
  Chooser chooser(p, list, exposure);
  GreedyResult result{p.start, false, {}};
  Footprint now = footprint_of(p, result.chosen);
  while (!(result.fits = satisfied(p, now))) {
    const int best = chooser.next(result.chosen);
    if (best < 0) break;
    Candidate& c = list[static_cast<std::size_t>(best)];
    c.open = false;
    const Conflict conflict = assignment.conflict(c.uses);
    if (conflict == Conflict::none) {
      assignment.apply(c.uses);
      result.chosen.set(c.tensor(), c.treatment());
      now = footprint_of(p, result.chosen);
    }
    result.trace.push_back({c.uses, conflict, c.freed, now.held});
  }
  if (result.fits && p.choice == GreedyChoice::ratio) give_back(p, assignment, exposure, result.chosen);
  return result;
}

}  // namespace spillway
