// flexible (BaGuaLu-2, arXiv 2610.23064): decides every block of every micro-batch when it runs, and its expert part again
// when the gate has told the load: a share of the memory that is left is its budget, Algorithm 2 finds mitigations
// within it, the expert group agrees on collectives. What was decided for the same budget and load is not planned again.
// Never out of memory: a decision leaves room for the least treatment of everything that is still to come.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/array_hash.hpp"
#include "plan/cost/operator_cost.hpp"
#include "plan/policy/activation_budget.hpp"
#include "plan/policy/greedy.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/static_plan.hpp"
#include "plan/policy/together.hpp"

namespace spillway {
namespace {

/// Loads are planned for in steps of 1/16 of balance, rounded up; budgets in steps of 1/32 of what keeping everything
/// takes, rounded down.
constexpr std::int64_t load_steps = 16, budget_steps = 32;

template <std::size_t n>
using NumbersKey = std::array<std::int64_t, n>;

/// Bytes that a block would like to keep at a load, and all blocks of its chunk that follow at balance.
struct Wish {
  std::int64_t fixed = 0, per_row = 0;
  double following = 0;
  double at(std::int64_t rows) const { return static_cast<double>(fixed + per_row * rows); }
};

/// Blocks that are alike, at one class of load, with the same behind them: Algorithm 2's rounds, and what they gave for
/// every class of budgets.
struct Path {
  Path(const Footprint& all, const GreedyProblem& p, ProgramCache& programs, int index)
      : keep_all(all), rounds(p, programs, index) {}
  Footprint keep_all;
  GreedyPath rounds;
  std::unordered_map<NumbersKey<5>, Mitigations, ArrayHash> plans;  // by steps of every limit
};

class Flexible final : public Policy {
 public:
  explicit Flexible(const PolicyOptions& options) : options_(options) {}

  bool adapts() const override { return true; }
  bool exact() const override { return !options_.quantize; }
  CacheCounts cache() const override { return counts_; }

  Mitigations decide(const Situation& s) override {
    if (s.block.kind != BlockKind::moe && s.block.kind != BlockKind::dense) return Mitigations::keep_all();
    return s.table != nullptr ? after_gate(s) : before_gate(s);
  }

 private:
  /// The last load seen here, or balance.
  static ExpertRows expected_rows(const Situation& s) {
    if (s.block.kind != BlockKind::moe) return {};
    const auto past = s.history.of(s.index);
    return past.empty() ? rows_at(s.block.context, 1) : past.back();
  }

  /// Before the gate nothing is given up that need not be: all of it can still go once the load is known.
  Mitigations before_gate(const Situation& s) {
    const Mitigations all = keep_all(s.block);
    if (s.block.kind == BlockKind::moe && survivable(s, all)) return all;
    const BlockRows rows{expected_rows(s), {}};
    GreedyProblem problem = problem_of(s, rows);
    if (s.block.kind == BlockKind::moe)
      problem.not_recomputed = problem.not_recomputed | collective_tensors(s.block.context);
    const Mitigations chosen = plan(s, problem, {});
    return survivable(s, chosen) ? chosen : least_mitigations(s.block);
  }

  /// Whether the least treatment after the gate still fits when the worst load comes.
  bool survivable(const Situation& s, const Mitigations& chosen) {
    const NumbersKey<4> key = {programs_.alike(s.index, s.block), bits(chosen.keep), bits(chosen.offload),
                               bits(chosen.quantize)};
    const auto found = at_worst_.find(key);
    if (found != at_worst_.end()) return fits(found->second, s.budget);
    const bool experts = s.block.kind == BlockKind::moe;
    const BlockRows worst = experts ? worst_slices(s.block.context) : BlockRows{};
    const Mitigations last_resort = experts ? least_mitigations(s.block, 1) : chosen;
    const Footprint f = footprint_of(s, {chosen, last_resort, static_cast<int>(worst.slices.size())}, worst);
    return fits(at_worst_.emplace(key, f).first->second, s.budget);
  }

  Mitigations after_gate(const Situation& s) {
    const GroupChoice group = group_.choose(s);
    const BlockRows rows{s.received[static_cast<std::size_t>(s.member)], {}};
    if (group.tiles_per_slice > 0) return least_under(group, s.block, false);
    GreedyProblem problem = problem_of(s, rows);
    problem.before = *s.before;
    problem.not_recomputed = problem.not_recomputed | collective_tensors(s.block.context);
    if (group.dispatch_again)
      for (const Tensor t : {Tensor::fc1_input, Tensor::row_weight, Tensor::returned_rows})
        if (collective_tensors(s.block.context).contains(t)) problem.start.set(t, Treatment::recompute);
    const Mitigations chosen = plan(s, problem, group);
    if (fits_here(s, chosen, rows)) return chosen;
    const Mitigations least = least_under(group, s.block, false);
    return fits_here(s, least, rows) ? least : least_under(group, s.block, true);
  }

  bool fits_here(const Situation& s, const Mitigations& m, const BlockRows& rows) {
    return fits_after_gate(footprint_of(s, {*s.before, m, 0}, rows), s.budget);
  }
  Footprint footprint_of(const Situation& s, const BlockDecision& d, const BlockRows& rows) {
    return programs_.get(s.index, s.block, s.alignment, d).form.at(rows);
  }

  GreedyProblem problem_of(const Situation& s, const BlockRows& rows) {
    GreedyProblem p{s.block, rows, s.budget, s.alignment, s.machine, options_.choice, options_.quantize, true, {}, {}};
    p.not_recomputed = tensor_parallel_tensors(s.block);
    p.start = keep_all(s.block);
    p.budget.held =
        std::min(p.budget.held, options_.share == BudgetShare::level ? level_share(s, rows) : algorithm_1(s, rows));
    return p;
  }

  /// The same part of its wish as everything that is still to come gets, at the load that is expected.
  Bytes level_share(const Situation& s, const BlockRows& rows) {
    const Footprint mine = footprint_of(s, BlockDecision(keep_all(s.block)), rows);
    const double part = s.books.level_share(mine);
    if (part >= 1) return s.budget.held;
    const Bytes least = s.books.least(s.index).held, wish = std::max(Bytes(0), mine.held - least);
    return least + Bytes(static_cast<std::int64_t>(std::ceil(static_cast<double>(wish.value) * part)));
  }

  /// This block's part of its micro-batch's share.
  Bytes algorithm_1(const Situation& s, const BlockRows& rows) const {
    const Bytes least = s.books.least(s.index).held;
    const Bytes share = activation_budget({s.budget.held, least, s.books.forwards_before_backward()}) - least;
    return least + Bytes(static_cast<std::int64_t>(static_cast<double>(share.value) * part(s, rows)));
  }

  /// What keeping everything takes beyond the least, here over here and all blocks of the chunk that follow.
  double part(const Situation& s, const BlockRows& rows) const {
    const Wish& wish = wishes_[static_cast<std::size_t>(s.index)];
    const double mine = wish.at(rows.whole.rows), all = mine + wish.following;
    return all > 0 ? mine / all : 1;
  }

  void prepare(const StageFacts& facts) override {
    wishes_.assign(facts.blocks.size(), {});
    for (std::size_t b = facts.blocks.size(); b-- > 0;) {
      const StageBlock& block = facts.blocks[b];
      const auto saved = [&](const ExpertRows& n) { return saved_bytes(block.kind, block.context, n).value; };
      wishes_[b] = {saved({}), saved({1, 1, {}}) - saved({}), 0};
      if (b + 1 == facts.blocks.size() || facts.blocks[b + 1].chunk != block.chunk) continue;
      const StageBlock& next = facts.blocks[b + 1];
      const std::int64_t balanced = next.kind == BlockKind::moe ? rows_at(next.context, 1).rows : 0;
      wishes_[b].following = wishes_[b + 1].at(balanced) + wishes_[b + 1].following;
    }
  }

  /// Rounds the problem to its class and plans it, unless that has been done before.
  Mitigations plan(const Situation& s, GreedyProblem& p, const GroupChoice& group) {
    const StageBlock& b = s.block;
    const std::int64_t step = std::max<std::int64_t>(1, b.context.routed_rows() / load_steps);
    ExpertRows& n = p.rows.whole;
    const std::int64_t load = b.kind == BlockKind::moe ? (n.rows + step - 1) / step : 0;
    if (b.kind == BlockKind::moe) n = {load * step, b.context.local_experts(), {}};
    Path& path = path_of(s, p, {programs_.alike(s.index, b), load, group.dispatch_again});
    const Footprint& all = path.keep_all;
    const std::int64_t forward = round_down(p.budget.forward, p.before ? all.after_gate : all.forward);
    const std::int64_t held = round_down(p.budget.held, all.held), ready = round_down(p.budget.ready, all.held);
    const std::int64_t backward = round_down(p.budget.backward, all.backward);
    const std::int64_t host = round_down(p.budget.host, all.held);
    ++counts_.lookups;
    const auto [at, is_new] = path.plans.try_emplace({forward, held, ready, backward, host});
    if (is_new)
      at->second = path.rounds.within(p.budget).chosen;
    else
      ++counts_.hits;
    return at->second;
  }

  struct PathClass {
    std::int64_t alike, load;
    bool dispatch_again;
  };
  Path& path_of(const Situation& s, const GreedyProblem& p, const PathClass& c) {
    const Mitigations before = p.before.value_or(Mitigations{});
    const NumbersKey<7> key = {c.alike,
                               c.load,
                               c.dispatch_again,
                               p.before.has_value(),
                               bits(before.keep),
                               bits(before.offload),
                               bits(before.quantize)};
    std::unique_ptr<Path>& path = paths_[key];
    if (path == nullptr) path = std::make_unique<Path>(keep_all_of(s, p), p, programs_, s.index);
    return *path;
  }
  Footprint keep_all_of(const Situation& s, const GreedyProblem& p) {
    return footprint_of(s, BlockDecision(Mitigations::keep_all()), p.rows);
  }

  /// Rounds a budget down to its step; anything beyond `whole` is as good as `whole`. Returns the step.
  static std::int64_t round_down(Bytes& budget, Bytes whole) {
    const std::int64_t step = std::max<std::int64_t>(1, whole.value / budget_steps);
    const std::int64_t steps = std::min(budget.value / step, whole.value / step + 1);
    budget = Bytes(steps * step);
    return steps;
  }
  static std::int64_t bits(const TensorSet& set) { return static_cast<std::int64_t>(set.bits()); }

  PolicyOptions options_;
  std::vector<Wish> wishes_;  // [block] of Algorithm 1
  GroupChooser group_;
  ProgramCache programs_;
  std::unordered_map<NumbersKey<4>, Footprint, ArrayHash> at_worst_;
  std::unordered_map<NumbersKey<7>, std::unique_ptr<Path>, ArrayHash> paths_;
  CacheCounts counts_;
};

}  // namespace

std::unique_ptr<Policy> make_flexible(const PolicyOptions& options) { return std::make_unique<Flexible>(options); }
std::unique_ptr<Policy> make_flexible_greedy(const PolicyOptions& given) {
  PolicyOptions options = given;
  options.choice = GreedyChoice::greedy;
  return std::make_unique<Flexible>(options);
}
std::unique_ptr<Policy> make_flexible_ratio(const PolicyOptions& given) {
  PolicyOptions options = given;
  options.choice = GreedyChoice::ratio;
  return std::make_unique<Flexible>(options);
}

}  // namespace spillway
