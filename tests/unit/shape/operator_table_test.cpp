// The operator table against published and hand-worked numbers, and against the shape's own counts.
#include "workload/shape/operator_table.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/random.hpp"
#include "workload/shape/parameters.hpp"

namespace spillway {
namespace {

using T = Tensor;
constexpr std::int64_t MiB = 1 << 20;

/// inputs/models/423b-a30b.toml on its published layout: sequence 4096, one sequence, TP 2, EP 64.
BlockContext published_423b(Inventory inventory = Inventory::lean) {
  BlockContext c;
  c.shape.hidden_size = 8192;
  c.shape.moe_intermediate_size = 4096;
  c.shape.num_experts = 128;
  c.shape.num_experts_per_tok = 6;
  c.shape.num_hidden_layers = 32;
  c.shape.num_attention_heads = c.shape.num_key_value_heads = 64;
  c.shape.head_dim = 128;
  c.shape.vocab_size = 151552;
  c.shape.bytes_per_element = 2;
  c.shape.inventory = inventory;
  c.sequence_length = 4096;
  c.tensor_parallel = 2;
  c.expert_parallel = 64;
  return c;
}
constexpr ExpertRows balanced{12288, 2};

TEST(OperatorTable, SevenPublishedTensorsOf423BAre672MiB) {
  const BlockContext c = published_423b();
  ASSERT_EQ(c.routed_rows(), balanced.rows);
  ASSERT_EQ(c.local_experts(), balanced.active);
  const std::pair<T, std::int64_t> published[] = {{T::block_input, 32},      {T::qkv, 96},
                                                  {T::attention_output, 32}, {T::mlp_norm_input, 32},
                                                  {T::fc1_input, 192},       {T::fc1_output, 192},
                                                  {T::fc2_input, 96}};
  Bytes sum;
  for (const auto& [tensor, mebibytes] : published) {
    EXPECT_EQ(bytes(tensor, c, balanced), Bytes(mebibytes * MiB)) << name(tensor);
    sum += bytes(tensor, c, balanced);
  }
  EXPECT_EQ(sum, Bytes(672 * MiB));
}

TEST(OperatorTable, InventoriesOf423BSave738And802And994MiB) {
  const auto saved = [](Inventory i) { return saved_activation_bytes(BlockKind::moe, published_423b(i), balanced); };
  EXPECT_EQ(saved(Inventory::lean), Bytes(1477 * MiB / 2));          // 738.5 MiB
  EXPECT_EQ(saved(Inventory::standard), Bytes(1605 * MiB / 2));      // 802.5 MiB
  EXPECT_EQ(saved(Inventory::with_combine), Bytes(1989 * MiB / 2));  // 994.5 MiB
}

TEST(OperatorTable, FourHundredEightyMiBOf423BScaleWithTheRowsReceived) {
  const auto saved = [](std::int64_t rows) {
    return saved_activation_bytes(BlockKind::moe, published_423b(), {rows, 2});
  };
  EXPECT_EQ(saved(balanced.rows) - saved(0), Bytes(480 * MiB));
  EXPECT_EQ(saved(2 * balanced.rows) - saved(balanced.rows), Bytes(480 * MiB));
}

TEST(OperatorTable, FloatElementsKeepNoSecondCopyOfTheRouterInput) {
  BlockContext lean = published_423b(), standard = published_423b(Inventory::standard);
  lean.shape.bytes_per_element = standard.shape.bytes_per_element = 4;
  EXPECT_EQ(saved_activation_bytes(BlockKind::moe, standard, balanced),
            saved_activation_bytes(BlockKind::moe, lean, balanced));
  // twice the 2-byte tensors; log-sum-exp (0.5 MiB) and router state (2 MiB) are fp32 at any element size
  EXPECT_EQ(saved_activation_bytes(BlockKind::moe, lean, balanced), Bytes(2 * 736 * MiB + 5 * MiB / 2));
}

TEST(OperatorTable, SharedExpertSavesItsFc1OutputAndFc2InputAndNothingElse) {
  BlockContext with = published_423b();
  with.mlp_size = 2048;
  const std::int64_t elements = 4096 * 3 * (2048 / 2);  // 3 S ms / t
  EXPECT_EQ(saved_activation_bytes(BlockKind::moe, with, balanced) -
                saved_activation_bytes(BlockKind::moe, published_423b(), balanced),
            Bytes(2 * elements));
}

/// A rank's place in a random layout of a random shape with everything a model can have.
struct RandomLayout {
  explicit RandomLayout(std::uint64_t seed) : random(seed) {
    tensor = pick(1, 2);
    data = pick(1, 4);
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= data * tensor; ++d)
      if (data * tensor % d == 0) divisors.push_back(d);
    expert = divisors[static_cast<std::size_t>(pick(0, std::ssize(divisors) - 1))];
    shape.hidden_size = 4 * pick(1, 6);
    shape.moe_intermediate_size = 2 * pick(1, 5);
    shape.num_experts = expert * pick(1, 4);
    shape.num_experts_per_tok = pick(1, shape.num_experts);
    shape.num_hidden_layers = pick(1, 5);
    shape.first_k_dense_replace = pick(0, shape.num_hidden_layers);
    shape.intermediate_size = 2 * pick(1, 9);
    shape.shared_expert_intermediate_size = 2 * pick(0, 5);
    shape.num_key_value_heads = 2 * pick(1, 2);
    shape.num_attention_heads = shape.num_key_value_heads * pick(1, 3);
    shape.head_dim = 2 * pick(1, 3);
    shape.vocab_size = 2 * pick(1, 20);
    shape.head = pick(0, 1) == 1;
    shape.inventory = static_cast<Inventory>(pick(0, 2));
    sequence_length = 2 * pick(1, 8);
    sequences = pick(1, 3);
  }
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random.below(draw++, static_cast<std::uint64_t>(high - low + 1)));
  }
  BlockContext context(std::int64_t mlp_size) const {
    return {shape, sequence_length, sequences, tensor, expert, mlp_size};
  }
  /// Block kinds of the whole model with their contexts.
  std::vector<std::pair<BlockKind, BlockContext>> blocks() const {
    std::vector<std::pair<BlockKind, BlockContext>> list;
    list.emplace_back(shape.head ? BlockKind::embedding : BlockKind::synthetic_input, context(0));
    for (std::int64_t layer = 0; layer < shape.num_hidden_layers; ++layer)
      list.emplace_back(shape.is_moe_layer(layer) ? BlockKind::moe : BlockKind::dense, context(shape.mlp_size(layer)));
    list.emplace_back(shape.head ? BlockKind::head : BlockKind::square_loss, context(0));
    return list;
  }
  /// The rows of all expert groups of a stage, dealt at random to its ranks.
  std::vector<ExpertRows> deal_rows() {
    std::vector<ExpertRows> rows(static_cast<std::size_t>(data * tensor));
    for (std::int64_t group = 0; group < data * tensor / expert; ++group)
      for (std::int64_t i = 0; i < expert * context(0).routed_rows(); ++i)
        ++rows[group * expert + pick(0, expert - 1)].rows;
    for (ExpertRows& r : rows) r.active = r.rows > 0 ? pick(1, shape.num_experts / expert) : 0;
    return rows;
  }

  CounterRandom random;
  std::uint64_t draw = 0;
  ModelShape shape;
  std::int64_t tensor, data, expert, sequence_length, sequences;
};

TEST(OperatorTable, ModelFlopsOverOperatorsAndRanksAreTheModelsWhateverTheRoutes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    RandomLayout layout(seed);
    double causal = 0, noncausal = 0;
    for (const auto& [kind, context] : layout.blocks()) {
      const auto rows = layout.deal_rows();
      for (const OperatorRow& row : operator_table(kind, context))
        for (const PassKind pass : {PassKind::forward, PassKind::backward})
          for (const ExpertRows& mine : rows) {
            causal += static_cast<double>(model_flops(row.op, pass, context, mine, true).value);
            noncausal += static_cast<double>(model_flops(row.op, pass, context, mine, false).value);
          }
    }
    const auto tokens = static_cast<double>(layout.data * layout.sequences * layout.sequence_length);
    const TokenFlops expected = model_flops_per_token(layout.shape, layout.sequence_length);
    ASSERT_EQ(causal, expected.causal * tokens) << "seed " << seed;
    ASSERT_EQ(noncausal, expected.noncausal * tokens) << "seed " << seed;
  }
}

TEST(OperatorTable, EveryTensorReadHasBeenMadeByAnEarlierOperator) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const RandomLayout layout(seed);
    for (const auto& [kind, context] : layout.blocks()) {
      const auto table = operator_table(kind, context);
      std::set<T> made = {T::block_input, T::d_residual};
      if (kind == BlockKind::head || kind == BlockKind::square_loss) made.erase(T::d_residual);
      for (const OperatorRow& row : table) {
        for (const T t : row.forward.reads) ASSERT_TRUE(made.contains(t)) << name(row.op) << " reads " << name(t);
        made.insert(row.forward.writes.begin(), row.forward.writes.end());
      }
      for (auto row = table.rbegin(); row != table.rend(); ++row) {
        for (const T t : row->backward.reads)
          ASSERT_TRUE(made.contains(t)) << name(row->op) << " backward reads " << name(t);
        made.insert(row->backward.writes.begin(), row->backward.writes.end());
      }
    }
  }
}

TEST(OperatorTable, NothingIsPlacedBeforeTheGateTableIsThere) {
  // Rows can be placed only when the group's table is known, and the table only when the router has chosen.
  const auto table = operator_table(BlockKind::moe, published_423b());
  const auto row = [&](Op op) {
    return *std::find_if(table.begin(), table.end(), [op](auto& r) { return r.op == op; });
  };
  EXPECT_EQ(row(Op::gate).forward.reads, std::vector<T>{T::router_state});
  EXPECT_EQ(row(Op::gate).forward.writes, std::vector<T>{T::router_state});
  const auto& dispatch = row(Op::dispatch).forward.reads;
  EXPECT_NE(std::find(dispatch.begin(), dispatch.end(), T::router_state), dispatch.end());
}

TEST(Parameters, OverStagesAndRanksAreTheModelsWithExpertsOncePerReplica) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const RandomLayout layout(seed);
    const ModelShape& s = layout.shape;
    std::int64_t experts = 0, other = 0, replicated = 0;
    for (const auto& [kind, context] : layout.blocks())
      for (const ParameterShape& p : parameters(kind, context)) {
        (p.group == ParameterGroup::expert ? experts : other) += p.size();
        const bool whole = p.standard_deviation == 0 || p.id == Parameter::router_weight;  // on every tensor rank
        if (whole) replicated += p.size();
      }
    const ParameterCount expected = count_parameters(s);
    ASSERT_EQ(experts * layout.expert, expected.experts) << "seed " << seed;  // over the ranks of one expert group
    ASSERT_EQ(other * layout.tensor - replicated * (layout.tensor - 1), expected.other + expected.embedding)
        << "seed " << seed;
  }
}

TEST(Parameters, StaticBytesAreTwoPlusFourPlusTwelveOverShardsForBf16AndSixteenForFloat) {
  const StaticBytes bf16 = static_bytes(1000, 2, 3);
  EXPECT_EQ(bf16.parameters, Bytes(2000));
  EXPECT_EQ(bf16.gradients, Bytes(4000));
  EXPECT_EQ(bf16.optimizer, Bytes(334 * 12));  // the last shard is padded
  EXPECT_EQ(bf16.total(), Bytes(6000 + 4008));
  const StaticBytes fp32 = static_bytes(1000, 4, 1);
  EXPECT_EQ(fp32.total(), Bytes(16 * 1000));
  EXPECT_EQ(static_bytes(0, 4, 8).total(), Bytes(0));
}

TEST(Parameters, StaticMemoryOf423BIsThePublishedTwentyGigabytes) {
  // 512 devices: PP 8, so 4 layers a stage; DP 32 x TP 2 = EP 64, so every expert has one replica. No head.
  std::int64_t experts = 0, dense = 0;
  for (const ParameterShape& p : parameters(BlockKind::moe, published_423b()))
    (p.group == ParameterGroup::expert ? experts : dense) += 4 * p.size();
  EXPECT_NEAR(static_cast<double>(experts), 0.81e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(dense), 0.54e9, 0.005e9);
  const Bytes total = static_bytes(experts, 2, 1).total() + static_bytes(dense, 2, 32).total();
  EXPECT_NEAR(static_cast<double>(total.value), 17.92e9, 0.05e9);
}

TEST(OperatorWork, ExpertsWithoutRowsCostNothing) {
  const BlockContext c = published_423b();
  for (const Op op : {Op::fc1, Op::swiglu, Op::fc2})
    for (const PassKind pass : {PassKind::forward, PassKind::backward})
      EXPECT_EQ(operator_work(op, pass, c, {}, true), OperatorWork{}) << name(op);
}

TEST(OperatorWork, DispatchOf423BReceives192MiBAndTheRowWeights) {
  const Bytes received = operator_work(Op::dispatch, PassKind::forward, published_423b(), balanced, true).received;
  EXPECT_EQ(received, Bytes(192 * MiB + 4 * 12288));
}

}  // namespace
}  // namespace spillway
