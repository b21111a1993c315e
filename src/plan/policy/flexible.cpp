// flexible (BaGuaLu-2, arXiv 2610.23064): decides every block of every micro-batch when it runs, and its expert part again
// when the gate has told the load: Algorithm 1 gives a micro-batch its budget, Algorithm 2 finds mitigations within it,
// the expert group agrees on collectives. What was decided for the same budget and load is not planned again. Never out
// of memory: a decision leaves room for the least treatment of everything that is still to come.
#include <array>
#include <unordered_map>

#include "plan/cost/operator_cost.hpp"
#include "plan/policy/activation_budget.hpp"
#include "plan/policy/greedy.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/static_plan.hpp"

namespace spillway {
namespace {

/// Loads are planned for in steps of 1/16 of balance, rounded up; budgets in steps of 1/32 of what keeping everything
/// takes, rounded down.
constexpr std::int64_t load_steps = 16, budget_steps = 32;

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
    if (s.block.kind == BlockKind::moe && survivable(s, Mitigations::keep_all())) return Mitigations::keep_all();
    const BlockRows rows{expected_rows(s), {}};
    GreedyProblem problem = problem_of(s, rows);
    if (s.block.kind == BlockKind::moe) problem.not_recomputed = collective_tensors(s.block.context);
    const Mitigations chosen = plan(s, problem, {});
    return survivable(s, chosen) ? chosen : least_mitigations(s.block.kind);
  }

  /// Whether the least treatment after the gate still fits when the worst load comes.
  bool survivable(const Situation& s, const Mitigations& chosen) {
    const FootprintSetting setting = footprint_setting(s.block.kind, s.block.context, s.alignment);
    if (s.block.kind != BlockKind::moe)
      return fits(footprint(programs_.get(s.index, s.block, BlockDecision(chosen)), setting, {}), s.budget);
    const BlockRows worst = worst_slices(s.block.context);
    const BlockDecision last_resort(chosen, least_mitigations(s.block.kind, 1), static_cast<int>(worst.slices.size()));
    return fits(footprint(programs_.get(s.index, s.block, last_resort), setting, worst), s.budget);
  }

  Mitigations after_gate(const Situation& s) {
    const GroupChoice group = group_.choose(s);
    BlockRows rows{all_rows(*s.table, s.member), {}};
    if (group.tiles_per_slice > 0) return least_under(group, s.block.context, false);
    GreedyProblem problem = problem_of(s, rows);
    problem.before = *s.before;
    problem.not_recomputed = collective_tensors(s.block.context);
    if (group.dispatch_again)
      for (const Tensor t : {Tensor::fc1_input, Tensor::row_weight, Tensor::returned_rows})
        if (problem.not_recomputed.contains(t)) problem.start.set(t, Treatment::recompute);
    const Mitigations chosen = plan(s, problem, group);
    if (fits_here(s, chosen, rows)) return chosen;
    const Mitigations least = least_under(group, s.block.context, false);
    return fits_here(s, least, rows) ? least : least_under(group, s.block.context, true);
  }

  bool fits_here(const Situation& s, const Mitigations& m, const BlockRows& rows) {
    const FootprintSetting setting = footprint_setting(s.block.kind, s.block.context, s.alignment);
    return fits_after_gate(footprint(programs_.get(s.index, s.block, {*s.before, m, 0}), setting, rows), s.budget);
  }

  /// The budget is this block's part of its micro-batch's share.
  GreedyProblem problem_of(const Situation& s, const BlockRows& rows) const {
    GreedyProblem p{s.block, rows, s.budget, s.alignment, s.machine, options_.choice, options_.quantize, true, {}, {}};
    const Footprint& least = s.books.least(s.index);
    const Bytes share = activation_budget({s.budget.held, least.held, s.books.forwards_before_backward()}) - least.held;
    p.budget.held = least.held + Bytes(static_cast<std::int64_t>(static_cast<double>(share.value) * part(s, rows)));
    return p;
  }

  /// What keeping everything takes beyond the least, here over here and all blocks of the chunk that follow.
  double part(const Situation& s, const BlockRows& rows) const {
    const auto wish = [&](std::size_t b, const ExpertRows& n) {
      const StageBlock& block = blocks_[b];
      return static_cast<double>(saved_bytes(block.kind, block.context, n).value);
    };
    const auto here = static_cast<std::size_t>(s.index);
    const double mine = wish(here, rows.whole);
    double all = mine;
    for (std::size_t b = here + 1; b < blocks_.size() && blocks_[b].chunk == s.block.chunk; ++b)
      all += wish(b, blocks_[b].kind == BlockKind::moe ? rows_at(blocks_[b].context, 1) : ExpertRows{});
    return all > 0 ? mine / all : 1;
  }

  void prepare(const StageFacts& facts) override { blocks_.assign(facts.blocks.begin(), facts.blocks.end()); }

  using Key = std::array<std::int64_t, 12>;
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::uint64_t h = 0;
      for (const std::int64_t k : key) h = (h ^ static_cast<std::uint64_t>(k)) * 0x9E3779B97F4A7C15u;
      return static_cast<std::size_t>(h ^ (h >> 29));
    }
  };

  /// Rounds the problem to its class and plans it, unless that has been done before.
  Mitigations plan(const Situation& s, GreedyProblem& p, const GroupChoice& group) {
    const StageBlock& b = s.block;
    const std::int64_t step = std::max<std::int64_t>(1, b.context.routed_rows() / load_steps);
    ExpertRows& n = p.rows.whole;
    const std::int64_t load = b.kind == BlockKind::moe ? (n.rows + step - 1) / step : 0;
    if (b.kind == BlockKind::moe) n = {load * step, b.context.local_experts(), {}};
    const Footprint& all = keep_all_at(s, n, load);
    const std::int64_t forward = round_down(p.budget.forward, p.before ? all.after_gate : all.forward);
    const std::int64_t held = round_down(p.budget.held, all.held), ready = round_down(p.budget.ready, all.held);
    const std::int64_t backward = round_down(p.budget.backward, all.backward);
    const std::int64_t host = round_down(p.budget.host, all.held);
    const Mitigations before = p.before.value_or(Mitigations{});
    const Key key = {s.index,
                     load,
                     forward,
                     held,
                     ready,
                     backward,
                     host,
                     p.before.has_value(),
                     group.dispatch_again,
                     bits(before.keep),
                     bits(before.offload),
                     bits(before.quantize)};
    ++counts_.lookups;
    const auto found = plans_.find(key);
    if (found != plans_.end()) {
      ++counts_.hits;
      return found->second;
    }
    return plans_.emplace(key, plan_greedily(p).chosen).first->second;
  }

  /// Rounds a budget down to its step; anything beyond `whole` is as good as `whole`. Returns the step.
  static std::int64_t round_down(Bytes& budget, Bytes whole) {
    const std::int64_t step = std::max<std::int64_t>(1, whole.value / budget_steps);
    const std::int64_t steps = std::min(budget.value / step, whole.value / step + 1);
    budget = Bytes(steps * step);
    return steps;
  }
  static std::int64_t bits(const TensorSet& set) { return static_cast<std::int64_t>(set.bits()); }

  const Footprint& keep_all_at(const Situation& s, const ExpertRows& n, std::int64_t load) {
    const auto key = std::make_pair(s.index, load);
    const auto found = keep_all_.find(key);
    if (found != keep_all_.end()) return found->second;
    const BlockProgram keep = compile(s.block.kind, s.block.context, Mitigations::keep_all());
    const FootprintSetting setting = footprint_setting(s.block.kind, s.block.context, s.alignment);
    return keep_all_.emplace(key, footprint(keep, setting, {n, {}})).first->second;
  }

  PolicyOptions options_;
  std::vector<StageBlock> blocks_;
  GroupChooser group_;
  ProgramCache programs_;
  std::unordered_map<Key, Mitigations, Hash> plans_;
  std::map<std::pair<int, std::int64_t>, Footprint> keep_all_;
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
