// dt and dm of operators and mitigations: worked by hand, and against the block programs that the executor carries out.
#include "plan/cost/operator_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/cost/time_model.hpp"
#include "plan/program/block_program.hpp"

namespace spillway {
namespace {

using T = Tensor;
using S = MitigationStrategy;
constexpr std::int64_t MiB = 1 << 20;

/// inputs/models/423b-a30b.toml on its published layout and machine: sequence 4096, TP 2, EP 64 on nodes of 8.
CostSituation published_423b() {
  CostSituation s;
  ModelShape& m = s.context.shape;
  m.hidden_size = 8192;
  m.moe_intermediate_size = 4096;
  m.num_experts = 128;
  m.num_experts_per_tok = 6;
  m.num_attention_heads = m.num_key_value_heads = 64;
  m.head_dim = 128;
  m.bytes_per_element = 2;
  s.context.sequence_length = 4096;
  s.context.tensor_parallel = 2;
  s.context.expert_parallel = 64;
  s.rows = {12288, 2, {}};
  s.machine.peak_flops = 480e12;
  s.machine.gemm_efficiency = 0.6;
  s.machine.memory_bandwidth = 2e12;
  s.machine.launch = Seconds(5e-6);
  s.machine.node_bandwidth = 400e9;
  s.machine.network_bandwidth = 25e9;
  s.machine.network_latency = Seconds(10e-6);
  s.machine.link_bandwidth = 48e9;
  return s;
}

OperatorCost forward(const CostSituation& s, Op op) { return operator_cost(s, op, PassKind::forward); }

TEST(OperatorCost, ForwardOf423BByHand) {
  const CostSituation s = published_423b();
  // fc1 of 12,288 rows: 4 N h m FLOPs at 288 TFLOP/s; it leaves its output, 2 x 4096 columns.
  EXPECT_DOUBLE_EQ(forward(s, Op::fc1).compute.value, 4.0 * 12288 * 8192 * 4096 / 288e12);
  EXPECT_EQ(forward(s, Op::fc1).saved, Bytes(192 * MiB));
  // A norm reads and writes 32 MiB and reads its gain at 2 TB/s; it leaves its output, and the first one the input too.
  EXPECT_DOUBLE_EQ(forward(s, Op::mlp_norm).compute.value, (64.0 * MiB + 2 * 8192) / 2e12);
  EXPECT_EQ(forward(s, Op::mlp_norm).saved, Bytes(32 * MiB));
  EXPECT_EQ(forward(s, Op::attention_norm).saved, Bytes(64 * MiB));
  // Dispatch: 192 MiB and the row weights, 7/8 of them across nodes at 25 GB/s.
  EXPECT_DOUBLE_EQ(forward(s, Op::dispatch).network.value, (192.0 * MiB + 4 * 12288) * 7 / 8 / 25e9 + 10e-6);
  EXPECT_EQ(forward(s, Op::dispatch).saved, Bytes(192 * MiB + 4 * 12288));
  EXPECT_EQ(forward(s, Op::combine).saved, Bytes(0));
}

TEST(OperatorCost, ALayerForwardOf423BTakesTheDerivedTimes) {
  // PAPERS: 3.71 TFLOP = 7.73 ms at peak, 12.9 ms at 0.60; norms and other passes add to it. Two all-to-alls of 7.0 ms.
  const OperatorCost layer = block_cost(published_423b(), PassKind::forward);
  EXPECT_GT(layer.compute.value, 12.9e-3);
  EXPECT_LT(layer.compute.value, 12.9e-3 * 1.1);
  // Rows of all tokens for QKV, sums of the out projection: 64 MiB each, half of them from the other rank at 400 GB/s.
  const double tensor_parallel = 2 * (32.0 * MiB / 400e9 + published_423b().machine.node_latency.value);
  EXPECT_DOUBLE_EQ(
      (forward(published_423b(), Op::qkv).network + forward(published_423b(), Op::out_projection).network).value,
      tensor_parallel);
  EXPECT_NEAR(layer.network.value, 14.1e-3 + tensor_parallel, 0.1e-3);
  EXPECT_EQ(layer.saved, saved_activation_bytes(BlockKind::moe, published_423b().context, {12288, 2, {}}) +
                             Bytes(4 * 12288));  // the row weights, which travel with the row map
}

TEST(OperatorCost, NodesOfTheExpertGroupDecideWhatCrosses) {
  CostSituation s = published_423b();
  s.nodes.assign(64, 0);
  EXPECT_DOUBLE_EQ(forward(s, Op::combine).network.value, 192.0 * MiB * 63 / 64 / 400e9 + s.machine.node_latency.value);
}

/// Blocks of every kind in every surrounding that changes an operator table.
std::vector<CostSituation> all_situations() {
  std::vector<CostSituation> list;
  for (const BlockKind kind : {BlockKind::embedding, BlockKind::synthetic_input, BlockKind::dense, BlockKind::moe,
                               BlockKind::head, BlockKind::square_loss})
    for (const std::int64_t shared : {0, 8})
      for (const std::int64_t expert_parallel : {1, 2, 8})
        for (const Inventory inventory : {Inventory::lean, Inventory::standard, Inventory::with_combine}) {
          CostSituation s;
          s.kind = kind;
          s.context.expert_parallel = expert_parallel;
          s.context.mlp_size = kind == BlockKind::dense ? 16 : shared;
          s.context.shape.inventory = inventory;
          s.context.shape.bytes_per_element = expert_parallel == 2 ? 4 : 2;
          s.context.sequence_length = 12;
          s.rows = {37, 1, {}};
          s.machine.launch = Seconds(0);
          list.push_back(s);
        }
  return list;
}

Bytes released(const Instruction& i, const CostSituation& s, const std::vector<Tensor>& saved) {
  Bytes sum;
  for (const Tensor t : i.release)
    if (std::find(saved.begin(), saved.end(), t) != saved.end()) sum += bytes(t, s.context, s.rows);
  return sum;
}

TEST(OperatorCost, EveryBackwardReleasesWhatTheBlockProgramReleases) {
  for (const CostSituation& s : all_situations()) {
    const BlockProgram keep = compile(s.kind, s.context, Mitigations::keep_all());
    const auto saved = saved_tensors(s.kind, s.context);
    for (const Instruction& i : keep.backward)
      EXPECT_EQ(operator_cost(s, i.op, PassKind::backward).saved, Bytes(0) - released(i, s, saved))
          << name(s.kind) << ' ' << name(i.op);
  }
}

TEST(OperatorCost, ComputesForTheWorkThatTheBlockProgramIsChargedWith) {
  for (const CostSituation& s : all_situations()) {
    const BlockProgram keep = compile(s.kind, s.context, Mitigations::keep_all());
    for (const auto& instructions : {keep.forward, keep.backward})
      for (const Instruction& i : instructions) {
        const bool fresh = i.allocates(T::block_output) || i.allocates(T::d_mlp_norm_output);
        const OperatorWork w = operator_work(i.op, i.pass, s.context, s.rows, fresh);
        EXPECT_EQ(operator_cost(s, i.op, i.pass).compute,
                  compute_seconds(s.machine, w.flops, w.bytes) +
                      compute_seconds(s.machine, Flops(0), w.bytes_after_message))
            << name(s.kind) << ' ' << name(i.op);
      }
  }
}

TEST(OperatorCost, ABlockReleasesInBackwardWhatItSavedInForward) {
  for (const CostSituation& s : all_situations()) {
    const Bytes saved = block_cost(s, PassKind::forward).saved;
    EXPECT_EQ(saved, saved_bytes(s.kind, s.context, s.rows));
    EXPECT_EQ(block_cost(s, PassKind::backward).saved, Bytes(0) - saved);
    for (const Tensor t : saved_tensors(s.kind, s.context))
      EXPECT_TRUE(t == T::block_input || compile(s.kind, s.context, Mitigations::keep_all()).kept.contains(t))
          << name(t);
  }
}

TEST(OperatorCost, TheFirstWriterOfASharedSumReadsNothing) {
  // Without a shared expert unpermute copies the residual before it adds; with one, mlp_fc2 does.
  CostSituation s = published_423b();
  const Bytes residual = bytes(T::block_output, s.context, s.rows);
  const Seconds alone = forward(s, Op::unpermute).compute;
  s.context.mlp_size = 2048;
  EXPECT_NEAR((alone - forward(s, Op::unpermute).compute).value, 2.0 * static_cast<double>(residual.value) / 2e12,
              1e-12);
}

TEST(OperatorCost, AnOperatorOfAnotherBlockIsRefused) {
  CostSituation s = published_423b();
  s.kind = BlockKind::head;
  EXPECT_THROW(forward(s, Op::fc1), InternalError);
  EXPECT_THROW(mitigation_cost(s, T::fc1_input, S::offload), InternalError);
}

TEST(MitigationCost, OffloadOf96MiBTakesItsBytesOverTheLinkEachWay) {
  const MitigationCost qkv = *mitigation_cost(published_423b(), T::qkv, S::offload);
  EXPECT_EQ(qkv.freed, Bytes(96 * MiB));
  EXPECT_DOUBLE_EQ(qkv.copy_out.value, 96.0 * MiB / 48e9);
  EXPECT_EQ(qkv.copy_in, qkv.copy_out);
  EXPECT_EQ(qkv.total(), qkv.copy_out + qkv.copy_in);
}

TEST(MitigationCost, OffloadToSharedMemoryFreesNothing) {
  CostSituation s = published_423b();
  s.machine.shared_memory = true;
  EXPECT_EQ(mitigation_cost(s, T::qkv, S::offload)->freed, Bytes(0));
}

TEST(MitigationCost, QuantizingFreesHalfLessScalesAndPassesOverBothFormsTwice) {
  const std::int64_t values = 48 * MiB, stored = values + values / 128 * 4;
  const MitigationCost qkv = *mitigation_cost(published_423b(), T::qkv, S::quantize);
  EXPECT_EQ(qkv.freed, Bytes(2 * values - stored));
  EXPECT_DOUBLE_EQ(qkv.total().value, 2.0 * static_cast<double>(2 * values + stored) / 2e12);
  EXPECT_EQ(qkv.compute, qkv.total());
}

TEST(MitigationCost, RecomputingIsTheForwardPassOfWhatMakesTheTensor) {
  const CostSituation s = published_423b();
  const auto expect = [&s](Tensor t, const std::vector<Op>& operators) {
    const MitigationCost cost = *mitigation_cost(s, t, S::recompute);
    EXPECT_EQ(repeated_operators(s.kind, s.context, {t}), operators) << name(t);
    EXPECT_EQ(cost.freed, bytes(t, s.context, s.rows)) << name(t);
    Seconds compute, network;
    for (const Op op : operators) {
      compute += forward(s, op).compute;
      network += forward(s, op).network;
    }
    EXPECT_EQ(cost.compute, compute) << name(t);
    EXPECT_EQ(cost.network, network) << name(t);
  };
  expect(T::attention_norm_output, {Op::attention_norm});
  expect(T::fc1_output, {Op::fc1});
  expect(T::fc2_input, {Op::swiglu});
  expect(T::fc1_input, {Op::dispatch});  // one more all-to-all
  EXPECT_GT(mitigation_cost(s, T::fc1_input, S::recompute)->network.value, 7e-3);
  EXPECT_EQ(mitigation_cost(s, T::block_input, S::recompute), std::nullopt);
}

TEST(MitigationCost, WhatForwardDoesNotLeaveBehindIsMadeAgainToo) {
  CostSituation s = published_423b();
  s.context.shape.inventory = Inventory::with_combine;
  EXPECT_EQ(repeated_operators(s.kind, s.context, {T::returned_rows}), (std::vector<Op>{Op::fc2, Op::combine}));
}

TEST(MitigationCost, ASetSharesTheOperatorsThatItsMembersNeed) {
  const CostSituation s = published_423b();
  // The whole MoE part: dispatch, fc1 and SwiGLU again; 2Nh + 6Nm and the row weights go.
  const MitigationCost experts = recompute_cost(s, {T::fc1_input, T::fc1_output, T::fc2_input, T::row_weight});
  EXPECT_EQ(experts.freed, Bytes((192 + 192 + 96) * MiB + 4 * 12288));
  EXPECT_EQ(experts.network, forward(s, Op::dispatch).network);
  EXPECT_EQ(experts.compute,
            forward(s, Op::dispatch).compute + forward(s, Op::fc1).compute + forward(s, Op::swiglu).compute);
  EXPECT_EQ(recompute_cost(s, {}).total(), Seconds(0));
}

TEST(MitigationCost, RepeatsTheOperatorsThatTheBlockProgramRepeats) {
  for (const CostSituation& s : all_situations()) {
    const auto saved = saved_tensors(s.kind, s.context);
    for (std::uint64_t draw = 0; draw < 40; ++draw) {
      const CounterRandom random(7, static_cast<std::int64_t>(draw));
      TensorSet dropped, kept;
      for (std::size_t i = 0; i < saved.size(); ++i)
        (random.below(i, 2) == 0 || saved[i] == T::block_input ? kept : dropped).insert(saved[i]);
      std::vector<Op> expected, found = repeated_operators(s.kind, s.context, dropped);
      for (const Instruction& i : compile(s.kind, s.context, Mitigations{kept, {}, {}, 0}).backward)
        if (i.recompute) expected.push_back(i.op);
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      ASSERT_EQ(found, expected) << name(s.kind) << " draw " << draw;
    }
  }
}

TEST(MitigationCost, NoRowsFreeNothingAndTakeNoTimeButTheMessages) {
  CostSituation s = published_423b();
  s.rows = {};
  for (const S strategy : all_strategies) {
    const MitigationCost cost = *mitigation_cost(s, T::fc1_output, strategy);
    EXPECT_EQ(cost.freed, Bytes(0)) << name(strategy);
    EXPECT_EQ(cost.total(), Seconds(0)) << name(strategy);
  }
}

}  // namespace
}  // namespace spillway
