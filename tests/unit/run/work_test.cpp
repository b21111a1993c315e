// The work that device calls charge is the operator table's, operator by operator: this is what makes predictions true.
// Runs at any number of ranks; all of them are one expert group.
#include <gtest/gtest.h>
#include <mpi.h>

#include <numeric>

#include "base/random.hpp"
#include "plan/policy/least.hpp"
#include "run/operator_runner.hpp"
#include "run/policy_run.hpp"

namespace spillway {
namespace {

/// Notes what the clock is asked about, and answers one second.
class Spy final : public device::TimeModel {
 public:
  Seconds compute(device::Work work) const override {
    (exchanged ? after : before) += work;
    return Seconds(1);
  }
  Seconds all_to_all(std::span<const Bytes> bytes, std::span<const int>) const override {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    exchanged = true;
    received = bytes[static_cast<std::size_t>(rank)];
    return Seconds(1);
  }
  Message message(Bytes, int, int) const override { return {}; }
  Seconds copy(Bytes) const override { return Seconds(0); }
  void forget() { before = after = {}, received = {}, exchanged = false; }

  mutable device::Work before, after;  ///< an all-to-all
  mutable Bytes received;
  mutable bool exchanged = false;
};

/// Distinct experts at random, none of them an odd one: a rank with several experts has some without rows.
class EvenExperts final : public RoutingSource {
 public:
  explicit EvenExperts(const Case& c) : problem_(routing_problem(c)) {}
  void choices(RoutingKey key, std::span<std::int32_t> experts) const override {
    const std::int64_t k = problem_.num_experts_per_tok, step = problem_.num_experts >= 2 * k ? 2 : 1;
    const CounterRandom random(11, key.layer, key.sequence);
    for (std::int64_t t = 0; t < problem_.sequence_length; ++t) {
      std::vector<std::int32_t> all;
      for (std::int64_t e = 0; e < problem_.num_experts; e += step) all.push_back(static_cast<std::int32_t>(e));
      for (std::int64_t j = 0; j < k; ++j) {
        std::swap(all[j], all[j + static_cast<std::int64_t>(
                                      random.below(t * k + j, static_cast<std::uint64_t>(std::ssize(all) - j)))]);
        experts[t * k + j] = all[j];
      }
    }
  }
  void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const override {
    std::vector<std::int32_t> experts(static_cast<std::size_t>(problem_.rows_per_sequence()));
    choices(key, experts);
    std::fill(rows.begin(), rows.end(), 0);
    for (const std::int32_t e : experts) ++rows[e];
  }
  bool in_burst(std::int64_t) const override { return false; }

 private:
  RoutingProblem problem_;
};

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// A dense and a MoE layer, grouped heads; no two extents are equal.
Case small_case() {
  Case c;
  ModelShape& m = c.model;
  m.hidden_size = 20;
  m.moe_intermediate_size = 6;
  m.num_experts = 5 * world_size();
  m.num_experts_per_tok = 2;
  m.num_hidden_layers = 2;
  m.first_k_dense_replace = 1;
  m.intermediate_size = 14;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 8;
  m.vocab_size = 26;
  c.grid = {1, world_size(), 1, world_size()};
  c.training.sequence_length = 9;
  c.training.micro_batch_size = 2;
  c.training.micro_batches = 1;
  return c;
}

/// Runs every block of a case forward and backward under a policy and compares each instruction's work.
class Campaign {
 public:
  Campaign(const Case& c, std::unique_ptr<Policy> policy)
      : case_(c),
        routing_(c),
        blocks_(stage_blocks(stage_setup(c), 0)),
        policy_(std::move(policy)),
        plan_(step_setup(c, one_forward_one_backward({1, 1}), 0, 1.0), *policy_),
        clock_(&spy_),
        engine_(c, blocks_, {.cap = Bytes(1 << 28), .backing = Bytes(1 << 28)}, clock_),
        timer_(clock_, stream_),
        nodes_(static_cast<std::size_t>(world_size()), 0),
        runner_({case_, routing_, nodes_}, engine_, blocks_, timer_) {}

  void run() {
    runner_.begin_iteration(0);
    for (plan_.begin_iteration(0); !plan_.finished(); plan_.advance()) {
      const int b = plan_.current().block;
      if (plan_.current().kind == Item::Kind::backward) carry_out(b, plan_.program(0, b).backward);
      if (plan_.current().kind == Item::Kind::forward) forward(b);
    }
    compare_model_flops();
  }
  int compared = 0;

 private:
  void forward(int b) {
    const BlockProgram& first = plan_.decide(0, b);
    const std::size_t gate = first.gate;
    if (gate == first.forward.size()) return carry_out(b, first.forward);
    runner_.announce(plan_.offer(0, b));
    carry_out(b, std::span(first.forward).first(gate + 1));
    const BlockProgram& second = plan_.decide_after_gate(0, b, runner_.gate(0, b));
    runner_.cut(0, b, plan_.mitigations(0, b).tiles_per_slice, static_cast<int>(plan_.rows(0, b).slices.size()));
    carry_out(b, std::span(second.forward).subspan(gate + 1));
  }
  void carry_out(int block, std::span<const Instruction> instructions) {
    for (const Instruction& i : instructions) carry_out(block, i);
  }
  void carry_out(int block, const Instruction& instruction) {
    const BlockContext& context = blocks_[block].context;
    const ExpertRows& rows = plan_.rows(0, block).of(instruction);
    for (const Tensor t : instruction.allocate)
      ASSERT_TRUE(engine_.activations.allocate({0, block, t}, extent(t, context, rows), category(t, context)));
    spy_.forget();
    if (instruction.action == Action::run) {
      runner_.run(0, block, instruction, rows);
      compare(blocks_[block], instruction);
    }
    for (const Tensor t : instruction.release) engine_.activations.release({0, block, t});
  }

  void compare(const StageBlock& block, const Instruction& i) {
    const ExpertRows& rows = plan_.rows(0, static_cast<int>(&block - blocks_.data())).of(i);
    const bool fresh = i.allocates(Tensor::block_output) || i.allocates(Tensor::d_mlp_norm_output);
    const OperatorWork expected = operator_work(i.op, i.pass, block.context, rows, fresh);
    SCOPED_TRACE(to_text({i}));
    EXPECT_EQ((spy_.before.flops + spy_.after.flops).value, expected.flops.value);
    if (i.op != Op::gate && spy_.exchanged) {
      EXPECT_EQ(spy_.before.bytes.value, expected.bytes.value);
      EXPECT_EQ(spy_.received.value, expected.received.value);
      EXPECT_EQ(spy_.after.bytes.value, expected.bytes_after_message.value);
    } else {
      EXPECT_EQ(spy_.before.bytes.value + spy_.after.bytes.value,
                (expected.bytes + expected.bytes_after_message).value);
      EXPECT_EQ(expected.received, Bytes(0)) << "predicted, but nothing was exchanged";
    }
    ++compared;
  }

  /// What the runner counted over all ranks is what the convention gives for their tokens.
  void compare_model_flops() {
    double counted[2] = {static_cast<double>(timer_.totals().model_flops_causal.value),
                         static_cast<double>(timer_.totals().model_flops_noncausal.value)};
    MPI_Allreduce(MPI_IN_PLACE, counted, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    const TokenFlops per_token = model_flops_per_token(case_.model, case_.training.sequence_length);
    const auto tokens = static_cast<double>(case_.tokens_per_iteration());
    EXPECT_EQ(counted[0], per_token.causal * tokens);
    EXPECT_EQ(counted[1], per_token.noncausal * tokens);
  }

  Case case_;
  EvenExperts routing_;
  std::vector<StageBlock> blocks_;
  std::unique_ptr<Policy> policy_;
  StepPlan plan_;
  Spy spy_;
  device::Clock clock_;
  Engine engine_;
  device::Stream stream_;
  LaneTimer timer_;
  std::vector<int> nodes_;
  OperatorRunner runner_;
};

/// The least memory: every dispatch in slices, and all of it again in backward.
class Sliced final : public Policy {
 public:
  explicit Sliced(std::int64_t tiles) : tiles_(tiles) {}
  Mitigations decide(const Situation& s) override { return least_mitigations(s.block.kind, tiles_); }

 private:
  std::int64_t tiles_;
};

/// Every policy recomputes something else; together they run every forward pass again that can be.
void compare_under_all_policies(const Case& c) {
  const auto run = [&c](const std::string& name, std::unique_ptr<Policy> policy) {
    SCOPED_TRACE(name);
    Campaign campaign(c, std::move(policy));
    campaign.run();
    EXPECT_GT(campaign.compared, 40);
  };
  for (const std::string name : {"keep", "selective", "full", "flexible"}) run(name, make_policy(name));
  for (const std::int64_t tiles : {1, 2, 100}) run(fmt::format("slices of {}", tiles), std::make_unique<Sliced>(tiles));
}

TEST(Work, DenseAndMoeLayersWithHead) { compare_under_all_policies(small_case()); }

TEST(Work, SharedExpertAccumulatesIntoWhatTheRoutedOnesWrite) {
  Case c = small_case();
  c.model.shared_expert_intermediate_size = 10;
  compare_under_all_policies(c);
}

TEST(Work, WeightsAtCombine) {
  Case c = small_case();
  c.model.inventory = Inventory::with_combine;
  compare_under_all_policies(c);
  c.model.shared_expert_intermediate_size = 10;
  compare_under_all_policies(c);
}

TEST(Work, OneExpertPerRankIsInOrderOnArrival) {
  Case c = small_case();
  c.model.num_experts = std::max(2, world_size());
  if (world_size() == 1) c.model.num_experts = c.model.num_experts_per_tok = 1;
  compare_under_all_policies(c);
  c.model.inventory = Inventory::with_combine;
  compare_under_all_policies(c);
}

TEST(Work, NoiseInAndSquareLossOut) {
  Case c = small_case();
  c.model.head = false;
  compare_under_all_policies(c);
}

TEST(Work, MoreRowsThanOneTileOfTheGroupedProducts) {
  Case c = small_case();
  c.training.sequence_length = 300;
  compare_under_all_policies(c);
}

}  // namespace
}  // namespace spillway
