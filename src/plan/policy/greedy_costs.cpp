#include "plan/policy/greedy_costs.hpp"

#include <algorithm>

#include "plan/cost/operator_cost.hpp"
#include "plan/cost/time_model.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

CostSituation cost_situation(const GreedyProblem& p, const ExpertRows& rows) {
  return {p.machine, p.block.kind, p.block.context, rows, {}};
}

}  // namespace

const CompiledBlock& GreedyCosts::compiled(const Mitigations& m) {
  const GreedyProblem& p = problem_;
  return programs_.get(index_, p.block, p.alignment, {p.before.value_or(m), m, static_cast<int>(p.rows.slices.size())});
}

Seconds GreedyCosts::exposed(const Mitigations& m) {
  const GreedyProblem& p = problem_;
  const BlockProgram& program = compiled(m).program;
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

Seconds GreedyCosts::again(const Instruction& i) {
  const auto price = [&] {
    return operator_cost(cost_situation(problem_, problem_.rows.of(i)), i.op, PassKind::forward).total();
  };
  if (i.slice >= 0) return price();
  std::optional<Seconds>& seconds = again_[static_cast<std::size_t>(i.op)];
  if (!seconds) seconds = price();
  return *seconds;
}

Seconds GreedyCosts::whole_pass(PassKind pass) {
  std::optional<Seconds>& seconds = passes_[pass == PassKind::forward ? 0 : 1];
  if (!seconds) seconds = block_cost(cost_situation(problem_, problem_.rows.whole), pass).total();
  return *seconds;
}

Seconds exposed_seconds(const GreedyProblem& problem, const Mitigations& m) {
  ProgramCache programs;
  return GreedyCosts(problem, programs, 0).exposed(m);
}

}  // namespace spillway
