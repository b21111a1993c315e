// unified: flexible's mitigations per operator (BaGuaLu-2, arXiv 2610.23064), planned once for a worst load and kept: what
// fine-grained mitigation is worth before it becomes dynamic. Never sliced.
//
// Algorithm 2 runs on every block until nothing is left to take; its steps do not depend on a budget, so the plan for a
// budget is the first step that meets it. The memory beyond the least is shared in equal parts: by the micro-batches that
// are live together, and by the blocks of a stage in proportion to what they would like to keep. Of all shares the fastest
// is taken that fits at the worst load in the order of the schedule, with the transients of both passes: the largest.
// (flexible.choice = ratio gives nothing back here: that would let a larger cap make a slower plan.)
#include <algorithm>
#include <map>

#include "plan/policy/baselines.hpp"
#include "plan/policy/greedy.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/least.hpp"

namespace spillway {
namespace {

/// How a chain begins: what may be offloaded, and what becomes of the tensors that came through a collective.
struct Start {
  bool offload = false;
  Treatment collective = Treatment::keep;
};

/// What Algorithm 2 does to a block, step by step; the first entry is its start.
struct Chain {
  std::vector<Mitigations> steps;
  std::vector<Bytes> held;
  std::vector<Seconds> exposed;
  std::size_t at = 0;

  bool ends() const { return at + 1 == steps.size(); }
  /// Of what the block would like to hold beyond its least, the part that it still holds.
  double share() const {
    const Bytes wish = held.front() - held.back();
    return wish.value > 0 ? (held[at] - held.back()) / wish : 1;
  }
};

struct Planner {
  const StageFacts& facts;
  const PolicyOptions& options;
  double load;

  Chain chain(const StageBlock& block, const Start& start) const {
    if (block.kind != BlockKind::moe && block.kind != BlockKind::dense)
      return {{Mitigations::keep_all()}, {Bytes(0)}, {Seconds(0)}};
    GreedyProblem problem{block,
                          {rows_of(block, load), {}},
                          {},
                          facts.alignment,
                          facts.machine,
                          options.choice,
                          options.quantize,
                          start.offload,
                          {},
                          {}};
    if (block.kind == BlockKind::moe) {
      problem.not_recomputed = collective_tensors(block.context);
      for (std::size_t i = 0; i < tensor_count; ++i)
        if (problem.not_recomputed.contains(static_cast<Tensor>(i)))
          problem.start.set(static_cast<Tensor>(i), start.collective);
    }
    Chain chain;
    Mitigations now = problem.start;
    const auto add = [&](Bytes held) {
      chain.steps.push_back(now);
      chain.held.push_back(held);
      chain.exposed.push_back(exposed_seconds(problem, now));
    };
    const FootprintSetting setting = footprint_setting(block.kind, block.context, facts.alignment);
    add(footprint(compile(block.kind, block.context, now), setting, problem.rows).held);
    for (const GreedyStep& step : plan_greedily(problem).trace) {
      if (step.conflict != Conflict::none) continue;
      now.set(step.candidate.front().tensor, step.candidate.front().treatment);
      add(step.held);
    }
    return chain;
  }

  /// One chain per block; blocks of a stage differ in their kind and their MLP alone.
  std::vector<Chain> chains(const Start& start) const {
    std::map<std::pair<BlockKind, std::int64_t>, Chain> different;
    std::vector<Chain> list;
    for (const StageBlock& block : facts.blocks) {
      const auto key = std::make_pair(block.kind, block.context.mlp_size);
      if (!different.contains(key)) different.emplace(key, chain(block, start));
      list.push_back(different.at(key));
    }
    return list;
  }

  /// Shows every share from all to none; the block with the largest takes the next step.
  void consider_shares(std::vector<Chain> chains, FastestPlan& fastest) const {
    for (;;) {
      std::vector<Mitigations> plan;
      Seconds exposed;
      Chain* next = nullptr;
      for (Chain& chain : chains) {
        plan.push_back(chain.steps[chain.at]);
        exposed += chain.exposed[chain.at];
        if (!chain.ends() && (next == nullptr || chain.share() > next->share())) next = &chain;
      }
      fastest.consider(plan, static_cast<double>(micro_batches(facts)) * exposed);
      if (next == nullptr) return;
      ++next->at;
    }
  }
};

class Unified final : public StaticPlanner {
 public:
  explicit Unified(const PolicyOptions& options) : options_(options) {}
  bool exact() const override { return !options_.quantize; }

 private:
  std::vector<Mitigations> plan(const StageFacts& facts) override { return plan_unified(facts, options_).plan; }
  PolicyOptions options_;
};

}  // namespace

StaticChoice plan_unified(const StageFacts& facts, const PolicyOptions& options) {
  const Planner planner{facts, options, std::max(facts.load, options.worst_load)};
  FastestPlan fastest(facts, planner.load);
  const bool experts = std::any_of(facts.blocks.begin(), facts.blocks.end(),
                                   [](const StageBlock& block) { return block.kind == BlockKind::moe; });
  // What only a collective brings back is computed again last; the choice is a constant, so the group agrees on it.
  for (const Treatment collective : {Treatment::keep, Treatment::offload, Treatment::recompute})
    for (const bool offload : {false, true}) {
      const bool copies = offload || collective == Treatment::offload;
      if ((copies && facts.machine.shared_memory) || (collective != Treatment::keep && !experts)) continue;
      planner.consider_shares(planner.chains({offload, collective}), fastest);
    }
  std::vector<Mitigations> full;
  Seconds exposed;
  for (const StageBlock& block : facts.blocks) {
    full.push_back(least_mitigations(block.kind));
    exposed += recompute_seconds(facts, block, full.back(), planner.load);
  }
  fastest.consider(full, static_cast<double>(micro_batches(facts)) * exposed);
  return fastest.best();
}

std::unique_ptr<Policy> make_unified(const PolicyOptions& options) { return std::make_unique<Unified>(options); }

}  // namespace spillway
