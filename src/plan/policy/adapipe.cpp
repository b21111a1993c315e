// adapipe (AdaPipe, ASPLOS'24): which units of computation a stage saves and which it repeats, by a knapsack under a
// static memory budget, planned before the first iteration and kept. No offload, no overlap; the division of layers over
// stages stays as it is.
//
// A unit is what one operator of a transformer layer saves. The last output of each half of a layer (attention, MLP) is
// always saved: the second norm's input and the next layer's input. A unit that is not saved is repeated in backward, by
// its own operator alone, so the seconds of a plan are a sum over its units and a 0/1 knapsack finds the best:
//   maximise the seconds of the saved units subject to static + live * sum of their bytes + buffers <= cap
// with `live` counted in the schedule's order. The buffers are what the passes need beyond that; they depend on the plan,
// so the capacity is tightened until the whole iteration fits.
#include <algorithm>

#include "plan/cost/operator_cost.hpp"
#include "plan/policy/baselines.hpp"
#include "plan/policy/knapsack.hpp"

namespace spillway {
namespace {

struct Unit {
  std::size_t block;
  TensorSet tensors;
  KnapsackItem item;
};

const TensorSet always_saved{Tensor::block_input, Tensor::mlp_norm_input};

bool is_layer(const StageBlock& block) { return block.kind == BlockKind::moe || block.kind == BlockKind::dense; }

/// Units of a stage's layers that may or may not be saved.
std::vector<Unit> units(const StageFacts& facts) {
  std::vector<Unit> list;
  for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
    const StageBlock& block = facts.blocks[b];
    if (!is_layer(block)) continue;
    const ExpertRows rows = rows_of(block, facts.load);
    const CostSituation situation{facts.machine, block.kind, block.context, rows, {}};
    TensorSet left;
    for (const Tensor t : saved_tensors(block.kind, block.context)) left.insert(t);
    left = left - always_saved;
    for (const OperatorRow& row : operator_table(block.kind, block.context)) {
      Unit unit{b, {}, {}};
      for (const Tensor t : row.forward.writes) {
        if (!left.contains(t)) continue;
        left.erase(t);
        unit.tensors.insert(t);
        unit.item.weight += round_up(bytes(t, block.context, rows), facts.alignment);
      }
      if (unit.tensors.empty()) continue;
      const MitigationCost again = recompute_cost(situation, unit.tensors);
      unit.item.value = again.compute + again.network;
      list.push_back(unit);
    }
  }
  return list;
}

class AdaPipe final : public StaticPlanner {
  std::vector<Mitigations> plan(const StageFacts& facts) override { return plan_adapipe(facts).plan; }
};

}  // namespace

StaticChoice plan_adapipe(const StageFacts& facts) {
  const std::vector<Unit> all = units(facts);
  std::vector<KnapsackItem> items;
  Seconds everything;
  for (const Unit& unit : all) {
    items.push_back(unit.item);
    everything += unit.item.value;
  }
  std::vector<Mitigations> nothing;
  for (const StageBlock& block : facts.blocks)
    nothing.push_back(is_layer(block) ? Mitigations{always_saved, {}, {}, 0} : Mitigations::keep_all());

  FastestPlan fastest(facts, facts.load);
  const std::int64_t live = peak_live(facts.order), chunks = facts.blocks.back().chunk + 1;
  for (const Knapsack::Solution& saved : Knapsack(items).solutions()) {
    const bool last = saved.weight.value == 0;
    const Bytes saved_by_all(live * saved.weight.value / chunks);  // a pair in flight holds a chunk's share
    if (facts.books.level() + saved_by_all > facts.books.cap() && !last) continue;
    std::vector<Mitigations> plan = nothing;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (saved.taken[i]) plan[all[i].block].keep = plan[all[i].block].keep | all[i].tensors;
    fastest.consider(plan, static_cast<double>(micro_batches(facts)) * (everything - saved.value));
    if (fastest.best().fits) break;
  }
  return fastest.best();
}

std::unique_ptr<Policy> make_adapipe(const PolicyOptions&) { return std::make_unique<AdaPipe>(); }

}  // namespace spillway
