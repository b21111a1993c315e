#include "plan/policy/fastest_plan.hpp"

#include <algorithm>

#include "plan/cost/operator_cost.hpp"
#include "plan/policy/greedy.hpp"

namespace spillway {

ExpertRows rows_of(const StageBlock& block, double load) {
  return block.kind == BlockKind::moe ? rows_at(block.context, load) : ExpertRows{};
}

std::vector<PassSeconds> pass_seconds(const StageFacts& facts, double load) {
  std::vector<PassSeconds> sums(static_cast<std::size_t>(facts.blocks.back().chunk) + 1);
  for (const StageBlock& block : facts.blocks) {
    const CostSituation s{facts.machine, block.kind, block.context, rows_of(block, load), {}};
    PassSeconds& sum = sums[static_cast<std::size_t>(block.chunk)];
    sum.forward += block_cost(s, PassKind::forward).total();
    sum.backward += block_cost(s, PassKind::backward).total();
  }
  return sums;
}

Seconds recompute_seconds(const StageFacts& facts, const StageBlock& block, const Mitigations& mitigations,
                          double load) {
  Mitigations without_copies = mitigations;
  without_copies.keep = mitigations.keep | mitigations.offload;
  without_copies.offload = {};
  const GreedyProblem problem{
      block, {rows_of(block, load), {}}, {}, facts.alignment, facts.machine, {}, false, false, {}, {}};
  return exposed_seconds(problem, without_copies);
}

int micro_batches(const StageFacts& facts) {
  return static_cast<int>(std::count_if(facts.order.begin(), facts.order.end(), [](const Task& task) {
    return task.kind == Task::Kind::forward && task.chunk == 0;
  }));
}

void FastestPlan::consider(const std::vector<Mitigations>& plan, Seconds added) {
  if (best_.fits && added >= best_.added) return;
  const Bytes cap = facts_.books.cap(), host_cap = facts_.books.host_cap();
  const StaticPeak peak = static_peak(facts_, plan, load_);
  const auto excess = [&](const StaticPeak& p) {
    return std::make_pair(std::max(p.host - host_cap, Bytes(0)), std::max(p.device, cap));
  };
  const bool fits = peak.host <= host_cap && peak.device <= cap;
  if (best_.plan.empty() || fits || excess(peak) < excess(best_.peak)) best_ = {plan, added, peak, fits};
}

}  // namespace spillway
