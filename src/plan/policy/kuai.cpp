// kuai (Megatron-Kuai, USENIX ATC'24): one checkpointing knob and one offload fraction, planned before the first iteration
// and kept. Published for dense models; experts count with their rows at the planned load.
//
// 1. knob: none (everything saved), ours (outputs of norms and SwiGLU computed again) or full (block inputs alone)
// 2. of what a micro-batch saves on the stage, largest tensor first, as much goes to the host tier as reaches
//    ceil(alpha * bytes). A tensor goes whole, so alpha matters only where it takes one more. Small ones stay, and on the
//    last stage those of the last block, whose backward pass follows at once.
// 3. per knob the smallest alpha that fits, then the fastest of the three
// The published alpha is one for all stages. A stage knows only itself here: every stage has its own.
#include <algorithm>

#include "plan/cost/operator_cost.hpp"
#include "plan/cost/time_model.hpp"
#include "plan/policy/baselines.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/selective.hpp"

namespace spillway {
namespace {

enum class Checkpoint : unsigned char { none, ours, full };

Mitigations checkpointed(Checkpoint knob, BlockKind kind) {
  if (knob == Checkpoint::none) return Mitigations::keep_all();
  return knob == Checkpoint::ours ? selective_mitigations() : least_mitigations(kind);
}

struct Saved {
  std::size_t block;
  Tensor tensor;
  Bytes bytes;
};

/// Copies of a micro-batch that its neighbours' passes do not hide. A copy out runs beside the forward pass after its own
/// in warm-up (T_F), beside a backward and the next forward pass in steady state (T_B + T_F); a copy in mirrors it. Where
/// a micro-batch goes backward right after its forward pass, only its own passes are beside its copies. passes, copy [chunks]
Seconds exposed_copies(std::span<const Task> order, const std::vector<PassSeconds>& passes,
                       const std::vector<Seconds>& copy) {
  const auto follows_itself = [&](std::size_t backward) {
    return order[backward - 1] == Task{Task::Kind::forward, order[backward].micro_batch, order[backward].chunk};
  };
  Seconds exposed;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const bool forward = order[i].kind == Task::Kind::forward;
    const std::size_t beside = forward ? i + 1 : i - 1;  // the task after a copy out, before a copy in
    const bool steady = order[beside].kind != order[i].kind && !follows_itself(std::max(i, beside));
    const auto chunk = static_cast<std::size_t>(order[i].chunk);
    const PassSeconds& pass = passes[chunk];
    const Seconds window = steady ? pass.forward + pass.backward : forward ? pass.forward : pass.backward;
    exposed += std::max(Seconds(0), copy[chunk] - window);
  }
  return exposed;
}

struct Planner {
  const StageFacts& facts;
  Bytes smallest;
  std::vector<PassSeconds> passes;  ///< [chunks]

  ExpertRows rows(const StageBlock& block) const { return rows_of(block, facts.load); }

  /// Tensors that may be offloaded, in the order in which alpha takes them.
  std::vector<Saved> candidates(const std::vector<Mitigations>& plan) const {
    std::vector<Saved> list;
    if (facts.machine.shared_memory) return list;
    const bool ends = !sends_output(facts.blocks, facts.blocks.back().chunk);
    const std::size_t blocks = facts.blocks.size() - (ends ? 1 : 0);
    for (std::size_t b = 0; b < blocks; ++b) {
      const StageBlock& block = facts.blocks[b];
      const TensorSet kept = compile(block.kind, block.context, plan[b]).kept;
      for (const Tensor t : saved_tensors(block.kind, block.context)) {
        const Bytes size = bytes(t, block.context, rows(block));
        if (kept.contains(t) && size >= smallest && size.value > 0) list.push_back({b, t, size});
      }
    }
    std::stable_sort(list.begin(), list.end(), [](const Saved& a, const Saved& b) { return a.bytes > b.bytes; });
    return list;
  }

  /// The smallest alpha that fits; where none does, all that the host tier can take.
  void consider(Checkpoint knob, FastestPlan& fastest) const {
    std::vector<Mitigations> plan;
    std::vector<PassSeconds> beside = passes;
    Seconds recompute;
    for (const StageBlock& block : facts.blocks) {
      plan.push_back(checkpointed(knob, block.kind));
      const Seconds again = recompute_seconds(facts, block, plan.back(), facts.load);
      beside[static_cast<std::size_t>(block.chunk)].backward += again;
      recompute += again;
    }
    std::vector<Seconds> copy(passes.size());
    const auto consider_now = [&] {
      const Seconds copies = exposed_copies(facts.order, beside, copy);
      fastest.consider(plan, static_cast<double>(micro_batches(facts)) * recompute + copies);
    };
    consider_now();
    for (const Saved& next : candidates(plan)) {
      plan[next.block].set(next.tensor, Treatment::offload);
      copy[static_cast<std::size_t>(facts.blocks[next.block].chunk)] += copy_seconds(facts.machine, next.bytes);
      consider_now();
    }
  }
};

class Kuai final : public StaticPlanner {
 public:
  explicit Kuai(const PolicyOptions& options) : options_(options) {}

 private:
  std::vector<Mitigations> plan(const StageFacts& facts) override { return plan_kuai(facts, options_).plan; }
  PolicyOptions options_;
};

}  // namespace

StaticChoice plan_kuai(const StageFacts& facts, const PolicyOptions& options) {
  const Planner planner{facts, options.kuai_smallest, pass_seconds(facts, facts.load)};
  FastestPlan fastest(facts, facts.load);
  for (const Checkpoint knob : {Checkpoint::none, Checkpoint::ours, Checkpoint::full}) planner.consider(knob, fastest);
  return fastest.best();
}

std::unique_ptr<Policy> make_kuai(const PolicyOptions& options) { return std::make_unique<Kuai>(options); }

}  // namespace spillway
