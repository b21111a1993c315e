// flexible at run time, an expert group in lockstep under random loads and caps: it stays within every budget, the group
// takes the same collectives, and what it remembers is what it would plan anew.
#include <gtest/gtest.h>

#include "plan/policy/together.hpp"
#include "planning_fixtures.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

constexpr int expert_ranks = 2, micro_batches = 4;

std::vector<StageBlock> stage_of_three(int tensor_parallel) {
  StageSetup setup;
  setup.shape.head = false;
  setup.shape.num_hidden_layers = 6;
  setup.shape.first_k_dense_replace = 1;
  setup.shape.intermediate_size = 48;
  setup.shape.shared_expert_intermediate_size = tensor_parallel > 1 ? 32 : 0;
  setup.grid = {2, expert_ranks / tensor_parallel, tensor_parallel, expert_ranks};
  setup.sequence_length = 512;  // 1024 rows a rank at balance, 2048 at worst: 8 tiles and more
  setup.layers_of_pieces = {3, 3};
  return stage_blocks(setup, 0);  // synthetic input, dense, moe, moe
}

StepPlan::Setup setup_with(Bytes cap, Bytes host_cap, int tensor_parallel = 1) {
  StepPlan::Setup setup =
      stage_of(stage_of_three(tensor_parallel), one_forward_one_backward({2, micro_batches})[0], cap, Bytes(256));
  setup.limits.host_cap = host_cap;
  return setup;
}

/// Peak of an iteration in which everything gets the least treatment.
Bytes least_peak(int tensor_parallel = 1) {
  const auto policy = make_policy("flexible");
  return StepPlan(setup_with(plenty, plenty, tensor_parallel), *policy).least();
}
Bytes keep_peak(int tensor_parallel = 1) {
  const auto policy = make_policy("keep");
  StepPlan plan(setup_with(plenty, plenty, tensor_parallel), *policy);
  return forecast_memory(plan, [](int, const StageBlock& b) { return balanced_rows(b.context, 2); }).ledger().peak();
}

/// Decides as a policy does, and checks every decision by what a policy without a past decides.
class Doubted final : public Policy {
 public:
  Doubted(std::string name, PolicyOptions options)
      : name_(std::move(name)), options_(std::move(options)), inner_(make_policy(name_, options_)) {}
  bool adapts() const override { return true; }
  void prepare(const StageFacts& facts) override {
    facts_.emplace(facts);
    inner_->prepare(facts);
  }
  Mitigations decide(const Situation& s) override {
    const Mitigations chosen = inner_->decide(s);
    const auto fresh = make_policy(name_, options_);
    fresh->prepare(*facts_);
    EXPECT_EQ(fresh->decide(s), chosen) << "micro-batch " << s.micro_batch << ", block " << s.index;
    return chosen;
  }
  CacheCounts cache() const override { return inner_->cache(); }

 private:
  std::string name_;
  PolicyOptions options_;
  std::unique_ptr<Policy> inner_;
  std::optional<StageFacts> facts_;
};

/// An expert group of which every member runs the same stage.
class Lockstep {
 public:
  using MakePolicy = std::function<std::unique_ptr<Policy>()>;
  Lockstep(Bytes cap, Bytes host_cap, const MakePolicy& make, int tensor_parallel = 1) {
    for (int m = 0; m < expert_ranks; ++m) {
      policies_.push_back(make());
      plans.push_back(std::make_unique<StepPlan>(setup_with(cap, host_cap, tensor_parallel), *policies_.back()));
    }
  }
  void run(std::int64_t iteration, const std::function<GateTable(int micro_batch, const StageBlock&)>& table_of) {
    for (auto& p : plans) p->begin_iteration(iteration);
    while (!plans[0]->finished()) {
      const Item item = plans[0]->current();
      if (item.kind == Item::Kind::forward) forward(item, table_of);
      for (auto& p : plans) p->advance();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  const Policy& policy(int member) const { return *policies_[static_cast<std::size_t>(member)]; }

  std::vector<std::unique_ptr<StepPlan>> plans;
  int sliced = 0, again = 0, kept = 0, blocks = 0, held = 0, together = 0;

 private:
  void forward(const Item& item, const std::function<GateTable(int, const StageBlock&)>& table_of) {
    const int mb = item.micro_batch, b = item.block;
    std::vector<Offer> offers;
    bool gate = false;
    for (auto& p : plans) {
      const BlockProgram& program = p->decide(mb, b);
      gate = program.gate < program.forward.size();
      offers.push_back(p->offer(mb, b));
    }
    const StageBlock& block = plans[0]->blocks()[static_cast<std::size_t>(b)];
    const GateTable table = gate ? table_of(mb, block) : GateTable{};
    for (int m = 0; m < expert_ranks; ++m) {
      StepPlan& p = *plans[static_cast<std::size_t>(m)];
      if (gate) p.decide_after_gate(mb, b, {table, offers, m});
      expect_within(p, mb, b, gate);
      count(p, mb, b, gate);
    }
  }
  void expect_within(const StepPlan& p, int mb, int b, bool gate) {
    const Footprint& f = p.memory().decided(mb, b);
    ASSERT_TRUE(gate ? fits_after_gate(f, p.budget(mb, b)) : fits(f, p.budget(mb, b)))
        << "micro-batch " << mb << ", block " << b;
    ASSERT_LE(p.memory().forecast(), p.limits().cap);
    ASSERT_LE(p.memory().host_level() + f.host, p.limits().host_cap);
  }
  void count(const StepPlan& p, int mb, int b, bool gate) {
    for (const Tensor t : {Tensor::qkv, Tensor::mlp_norm_input, Tensor::mlp_fc1_output}) {
      const StageBlock& block = p.blocks()[static_cast<std::size_t>(b)];
      if (!tensor_parallel_tensors(block).contains(t)) continue;
      const BlockProgram& program = p.program(mb, b);
      const bool saved = (program.kept | program.offloaded | program.quantized).contains(t);
      ASSERT_EQ(saved, block.held.contains(t)) << name(t) << ", micro-batch " << mb << ", block " << b;
      ASSERT_EQ(block.held, plans[0]->blocks()[static_cast<std::size_t>(b)].held);
      held += saved;
      together += !saved;
    }
    if (!gate) return;
    const Mitigations &mine = p.mitigations(mb, b), &first = plans[0]->mitigations(mb, b);
    ASSERT_EQ(mine.tiles_per_slice, first.tiles_per_slice);
    ASSERT_EQ(mine.of(Tensor::fc1_input) == Treatment::recompute, first.of(Tensor::fc1_input) == Treatment::recompute);
    ++blocks;
    sliced += mine.tiles_per_slice > 0;
    again += mine.of(Tensor::fc1_input) == Treatment::recompute;
    kept += mine == Mitigations::keep_all();
  }
  std::vector<std::unique_ptr<Policy>> policies_;
};

Lockstep::MakePolicy flexible(const std::string& name, bool quantize = false) {
  PolicyOptions options;
  options.quantize = quantize;
  return [name, options] { return make_policy(name, options); };
}

TEST(Flexible, NeverChoosesAFootprintBeyondItsBudgetAndTheGroupTakesTheSameCollectives) {
  const Bytes least = least_peak(), most = keep_peak();
  ASSERT_LT(least, most);
  int sliced = 0, again = 0, kept = 0, blocks = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, 9);
    const double share = seed % 6 == 0 ? 0 : random.uniform(0) * random.uniform(1) * 1.3;
    const Bytes cap = least + Bytes(static_cast<std::int64_t>(share * static_cast<double>((most - least).value)));
    const Bytes host(static_cast<std::int64_t>(random.below(2, 3) * random.below(3, 4 << 20)));
    Lockstep group(cap, host, flexible(seed % 2 == 0 ? "flexible:ratio" : "flexible:greedy", seed % 3 == 0));
    for (int iteration = 0; iteration < 2; ++iteration)
      group.run(iteration, [&](int mb, const StageBlock& b) {
        return random_table(b.context, mix(seed, iteration, mb, b.layer));
      });
    if (HasFatalFailure()) return;
    sliced += group.sliced;
    again += group.again;
    kept += group.kept;
    blocks += group.blocks;
  }
  // The situations reach from nothing to give up to the last resort.
  EXPECT_GT(sliced, 0);
  EXPECT_GT(again, sliced);
  EXPECT_GT(kept, 0);
  EXPECT_LT(again + kept, blocks);
}

TEST(Flexible, TensorParallelRanksRecomputeTogetherWhatOnlyTheirGroupBringsBack) {
  const Bytes least = least_peak(2), most = keep_peak(2);
  ASSERT_LT(least, most);
  int held = 0, together = 0, sliced = 0;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, 11);
    const double share = seed % 4 == 0 ? 0 : random.uniform(0) * random.uniform(1);
    const Bytes cap = least + Bytes(static_cast<std::int64_t>(share * static_cast<double>((most - least).value)));
    const Bytes host(static_cast<std::int64_t>(random.below(2, 2) * random.below(3, 4 << 20)));
    Lockstep group(cap, host, flexible(seed % 2 == 0 ? "flexible:ratio" : "flexible:greedy"), 2);
    for (int iteration = 0; iteration < 2; ++iteration)
      group.run(iteration, [&](int mb, const StageBlock& b) {
        return random_table(b.context, mix(seed, iteration, mb, b.layer));
      });
    if (HasFatalFailure()) return;
    held += group.held;
    together += group.together;
    sliced += group.sliced;
  }
  EXPECT_GT(held, 0);
  EXPECT_GT(together, 0);
  EXPECT_GT(sliced, 0);
}

TEST(Flexible, TensorParallelBlocksHoldMoreTheLargerTheCap) {
  const auto policy = make_policy("flexible");
  const Bytes least = least_peak(2), most = keep_peak(2);
  std::ptrdiff_t before = 0;
  for (int step = 0; step <= 32; ++step) {
    const Bytes cap = least + Bytes((most - least).value * step / 32);
    const StepPlan plan(setup_with(cap, plenty, 2), *policy);
    EXPECT_LE(plan.memory().forecast(), cap);
    EXPECT_EQ(plan.least(), least);
    const auto holds = std::ranges::count_if(plan.blocks(), [](const StageBlock& b) { return !b.held.empty(); });
    EXPECT_GE(holds, before);
    if (step == 0) {
      EXPECT_EQ(holds, 0);
    }
    before = holds;
  }
  EXPECT_EQ(before, 3) << "every layer";
}

TEST(Flexible, WhatItRemembersIsWhatItWouldPlanAnew) {
  const Bytes least = least_peak(), most = keep_peak();
  for (const double share : {0.1, 0.4, 0.7})
    for (const std::string name : {"flexible:greedy", "flexible:ratio"}) {
      SCOPED_TRACE(::testing::Message() << name << " with " << share << " of what keeping takes");
      const Bytes cap = least + Bytes(static_cast<std::int64_t>(share * static_cast<double>((most - least).value)));
      Lockstep group(cap, Bytes(1 << 20), [&] { return std::make_unique<Doubted>(name, PolicyOptions{}); });
      for (int iteration = 0; iteration < 2; ++iteration)
        group.run(iteration, [](int mb, const StageBlock& b) { return random_table(b.context, mix(1, mb, b.layer)); });
      const CacheCounts counts = group.policy(0).cache();
      EXPECT_GT(counts.hits, 0);
      EXPECT_LT(counts.hits, counts.lookups);
    }
}

/// All rows to the experts of the first member: what a rank meets at worst.
GateTable worst_table(const BlockContext& c) {
  GateTable t{{}, c.expert_parallel, c.shape.num_experts};
  t.rows.assign(static_cast<std::size_t>(t.members * t.experts), 0);
  for (std::int64_t source = 0; source < t.members; ++source)
    for (std::int64_t e = 0; e < c.shape.num_experts_per_tok; ++e)
      t.rows[static_cast<std::size_t>(source * t.experts + e)] = c.local_tokens();
  return t;
}

TEST(Flexible, ACapJustAboveTheLeastGivesSlicesAndAmpleMemoryGivesNothingUp) {
  const auto run = [](Bytes cap) {
    Lockstep group(cap, Bytes(0), flexible("flexible"));
    group.run(0, [](int, const StageBlock& b) { return worst_table(b.context); });
    return std::array<int, 3>{group.blocks, group.sliced, group.kept};
  };
  const auto [blocks, sliced, kept] = run(least_peak() + Bytes(256));
  EXPECT_EQ(blocks, 2 * micro_batches * expert_ranks);
  EXPECT_EQ(kept, 0);
  EXPECT_GT(sliced, 0);
  const auto ample = run(plenty);
  EXPECT_EQ(ample[1], 0);
  EXPECT_EQ(ample[2], ample[0]);
}

// One micro-batch of four equal layers: each takes its part of what is left, those after it taken into account.
TEST(Flexible, LayersShareAMicroBatchsBudgetInProportionToWhatTheyWouldKeep) {
  PolicyOptions options;
  options.share = BudgetShare::published;
  const std::vector<StageBlock> layers(4, StageBlock{BlockKind::dense, 0, small_dense_layer()});
  const std::vector<Task> order = {{Task::Kind::forward, 0}, {Task::Kind::backward, 0}};
  const auto free = make_policy("flexible");
  const Bytes least_needed = StepPlan(stage_of(layers, order), *free).memory().forecast();
  int gave_up = 0, kept = 0;
  for (std::int64_t spare = 0; spare <= 8000; spare += 100) {
    const auto policy = make_policy("flexible:greedy", options);
    StepPlan plan(stage_of(layers, order, least_needed + Bytes(spare)), *policy);
    for (plan.begin_iteration(0); !plan.finished(); plan.advance()) {
      if (plan.current().kind != Item::Kind::forward) continue;
      const int b = plan.current().block;
      plan.decide(0, b);
      const Bytes least = plan.memory().least(b).held, held = plan.memory().decided(0, b).held;
      const auto share = static_cast<double>((plan.budget(0, b).held - least).value) / (4 - b);
      ASSERT_LE(static_cast<double>((held - least).value), share) << spare << " bytes, block " << b;
      ++(plan.mitigations(0, b) == Mitigations::keep_all() ? kept : gave_up);
    }
  }
  EXPECT_GT(gave_up, 0);
  EXPECT_GT(kept, 0);
}

TEST(Flexible, GivesUpNothingInBlocksThatAreNoLayers) {
  const auto policy = make_policy("flexible");
  EXPECT_EQ(decision("flexible", BlockKind::head, {}), Mitigations::keep_all());
  EXPECT_TRUE(policy->adapts());
  EXPECT_TRUE(policy->exact());
  PolicyOptions lossy;
  lossy.quantize = true;
  EXPECT_FALSE(make_policy("flexible", lossy)->exact());
}

}  // namespace
}  // namespace spillway
