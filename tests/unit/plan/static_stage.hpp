#pragma once
// A stage for static planners: by hand, or at random from a seed.
#include <memory>
#include <numeric>

#include "base/random.hpp"
#include "plan/policy/baselines.hpp"
#include "plan/policy/least.hpp"
#include "plan/step_plan.hpp"

namespace spillway {

struct StaticStage {
  StageSetup setup;
  int stage = 0;
  std::vector<Task> order;
  MachineProfile machine;
  Bytes alignment{1}, cap{std::int64_t{1} << 50}, host_cap{std::int64_t{1} << 50};
  double load = 1;

  std::vector<StageBlock> blocks() const { return stage_blocks(setup, stage); }
  RankElements elements() const { return rank_elements(blocks(), Grid(setup.grid)); }
  Bytes fixed() const {
    ByteLedger ledger(alignment);
    add_static_memory(ledger, elements(), setup.shape.bytes_per_element);
    return ledger.live();
  }
  Bytes peak_of_gradient_step() const {
    ByteLedger ledger(alignment);
    add_static_memory(ledger, elements(), setup.shape.bytes_per_element);
    add_gradient_step(ledger, elements());
    return ledger.peak();
  }
  StepPlan::Setup step_setup() const {
    return {blocks(), order, elements(), {alignment, cap, host_cap, machine.shared_memory}, machine, load};
  }
};

/// What a planner is told about a stage.
class StageFactsOf {
 public:
  explicit StageFactsOf(const StaticStage& s)
      : stage_(s),
        blocks_(s.blocks()),
        books_(StageMemory::Setup{blocks_, s.order, s.fixed(), s.cap, s.host_cap, least(s)}),
        facts_{blocks_, stage_.order, books_, s.alignment, stage_.machine, s.load} {}
  StageFactsOf(const StageFactsOf&) = delete;
  const StageFacts& operator*() const { return facts_; }
  const StageFacts* operator->() const { return &facts_; }

 private:
  static std::vector<Footprint> least(const StaticStage& s) {
    std::vector<Footprint> list;
    for (const StageBlock& block : s.blocks()) list.push_back(least_footprint(block, s.alignment));
    return list;
  }
  StaticStage stage_;
  std::vector<StageBlock> blocks_;
  StageMemory books_;
  StageFacts facts_;
};

/// Peak of the stage's books, carried out instruction by instruction with every dispatch at `load` x balance.
inline StaticPeak carried_out(const StaticStage& s, Policy& policy, double load) {
  StepPlan plan(s.step_setup(), policy);
  const Books books = forecast_memory(plan, [load](int, const StageBlock& b) { return rows_of(b, load); });
  return {books.ledger().peak(), books.host().peak()};
}

/// "F0 F1 B0 B1" as tasks.
inline std::vector<Task> tasks(std::string_view text) {
  std::vector<Task> order;
  for (std::size_t i = 0; i < text.size(); i += 3)
    order.push_back({text[i] == 'F' ? Task::Kind::forward : Task::Kind::backward, text[i + 1] - '0'});
  return order;
}

/// The middle stage of three, dense layers small enough to add up by hand. Bytes: [T, h] 128 (block_input,
/// attention_norm_output, attention_output, mlp_norm_input, mlp_norm_output), qkv 384, log_sum_exp 32, mlp_fc1_output 512,
/// mlp_fc2_input 256: a layer saves 1824.
inline StaticStage dense_stage(std::int64_t layers, std::string_view order) {
  StaticStage s;
  ModelShape& m = s.setup.shape;
  m.hidden_size = 8;
  m.num_attention_heads = m.num_key_value_heads = 2;
  m.head_dim = 4;
  m.intermediate_size = 16;
  m.head = false;
  m.num_hidden_layers = m.first_k_dense_replace = layers + 2;
  s.setup.sequence_length = 4;
  s.setup.grid.pipeline_parallel = 3;
  s.setup.layers_of_pieces = {1, layers, 1};
  s.stage = 1;
  s.order = tasks(order);
  return s;
}

/// Draws from a seed, one after the other.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(index_++, static_cast<std::uint64_t>(n)));
  }
  std::int64_t of(std::initializer_list<std::int64_t> list) {
    return *(list.begin() + below(static_cast<std::int64_t>(list.size())));
  }
  double uniform(double low, double high) { return low + (high - low) * random_.uniform(index_++); }

 private:
  CounterRandom random_;
  std::uint64_t index_ = 0;
};

/// Forward and backward in any order a pipeline could have: 1F1B of any depth, or all forwards first, first or last in
/// going back first.
inline std::vector<Task> random_order(Draw& draw) {
  const int count = static_cast<int>(1 + draw.below(5)), depth = static_cast<int>(1 + draw.below(4));
  if (draw.below(2) == 0) return one_forward_one_backward({depth, count})[draw.below(depth)];
  std::vector<Task> order;
  const bool reversed = draw.below(2) == 0;
  for (int i = 0; i < count; ++i) order.push_back({Task::Kind::forward, i});
  for (int i = 0; i < count; ++i) order.push_back({Task::Kind::backward, reversed ? count - 1 - i : i});
  return order;
}

inline StaticStage random_stage(std::uint64_t seed) {
  Draw draw(seed);
  StaticStage s;
  ModelShape& m = s.setup.shape;
  m.hidden_size = draw.of({16, 32, 48});
  m.moe_intermediate_size = draw.of({8, 16, 40});
  m.num_experts = draw.of({4, 8});
  m.num_experts_per_tok = draw.of({1, 2, 3});
  m.first_k_dense_replace = draw.below(2);
  m.intermediate_size = draw.of({24, 64});
  m.shared_expert_intermediate_size = draw.of({0, 16});
  m.num_attention_heads = m.num_key_value_heads = 2;
  m.head_dim = draw.of({4, 8});
  m.vocab_size = draw.of({32, 256});
  m.head = draw.below(2) == 0;
  m.bytes_per_element = draw.of({2, 4});
  m.inventory = static_cast<Inventory>(draw.below(3));
  s.setup.grid = {static_cast<int>(draw.of({1, 2, 3})), static_cast<int>(draw.of({2, 4})),
                  static_cast<int>(draw.of({1, 2})), static_cast<int>(draw.of({1, 2}))};
  s.setup.sequence_length = draw.of({8, 20, 64});
  for (int i = 0; i < s.setup.grid.pipeline_parallel; ++i) s.setup.layers_of_pieces.push_back(1 + draw.below(3));
  m.num_hidden_layers =
      std::accumulate(s.setup.layers_of_pieces.begin(), s.setup.layers_of_pieces.end(), std::int64_t{0});
  s.stage = static_cast<int>(draw.below(s.setup.grid.pipeline_parallel));
  s.order = random_order(draw);
  s.alignment = Bytes(draw.of({1, 256}));
  s.load = draw.uniform(1, 2.6);
  s.machine.link_bandwidth = draw.uniform(1e7, 1e10);
  s.machine.memory_bandwidth = draw.uniform(1e9, 1e11);
  s.machine.peak_flops = draw.uniform(1e9, 1e12);
  s.machine.launch = Seconds(draw.of({0, 1}) == 0 ? 0 : 5e-6);
  return s;
}

/// Device peaks of a stage that keeps everything and of one that keeps block inputs alone.
struct PeakRange {
  Bytes least, most;
  /// A cap `part` of the way from the least to the most; below 0 nothing may fit.
  Bytes at(double part) const {
    return least + Bytes(static_cast<std::int64_t>(static_cast<double>((most - least).value) * part));
  }
};
inline PeakRange peak_range(const StaticStage& s, double load) {
  const StageFactsOf facts(s);
  std::vector<Mitigations> keep, full;
  for (const StageBlock& block : facts->blocks) {
    keep.push_back(Mitigations::keep_all());
    full.push_back(least_mitigations(block.kind));
  }
  const Bytes a = static_peak(*facts, full, load).device, b = static_peak(*facts, keep, load).device;
  return {std::min(a, b), std::max(a, b)};
}

}  // namespace spillway
