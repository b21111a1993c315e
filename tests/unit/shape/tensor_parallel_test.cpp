// What a tensor-parallel rank has: parts of matrices that cover the whole, work that adds up to it, and messages.
#include <gtest/gtest.h>

#include <set>

#include "workload/shape/parameters.hpp"

namespace spillway {
namespace {

BlockContext context(std::int64_t t) {
  BlockContext c;
  c.shape.num_attention_heads = 8;
  c.shape.num_key_value_heads = 4;
  c.sequence_length = 32;
  c.sequences = 2;
  c.tensor_parallel = t;
  c.expert_parallel = t;
  c.mlp_size = c.shape.shared_expert_intermediate_size = c.shape.intermediate_size = 24;
  return c;
}

constexpr BlockKind kinds[] = {BlockKind::embedding, BlockKind::dense, BlockKind::moe, BlockKind::head};

TEST(TensorParallel, PartsOfEveryDividedMatrixCoverItOnce) {
  for (const BlockKind kind : kinds) {
    const auto whole = parameters(kind, context(1));
    for (const std::int64_t t : {2, 4}) {
      const auto parts = parameters(kind, context(t));
      ASSERT_EQ(parts.size(), whole.size());
      for (std::size_t p = 0; p < parts.size(); ++p) {
        SCOPED_TRACE(name(parts[p].id));
        EXPECT_EQ(parts[p].standard_deviation, whole[p].standard_deviation);
        if (parts[p].division == Division::none) {
          EXPECT_EQ(parts[p].size(), whole[p].size());
          EXPECT_EQ(parts[p].group, ParameterGroup::plane);
          continue;
        }
        std::set<std::int64_t> seen;
        for (std::int64_t part = 0; part < t; ++part)
          for (std::int64_t i = 0; i < parts[p].size(); ++i) seen.insert(whole_index(parts[p], part, t, i));
        EXPECT_EQ(std::ssize(seen), whole[p].size());
        EXPECT_EQ(*seen.begin(), 0);
        EXPECT_EQ(*seen.rbegin(), whole[p].size() - 1);
      }
    }
  }
}

TEST(TensorParallel, ColumnsKeepTheirHeadsTogether) {
  const ParameterShape qkv{Parameter::qkv_weight, ParameterGroup::dense, 3, 8, 1.0, Division::columns, {4, 2, 2}};
  // whole: 8 query, 4 key, 4 value columns; the second of two ranks has 4..7, 10..11, 14..15
  std::vector<std::int64_t> row;
  for (std::int64_t i = 8; i < 16; ++i) row.push_back(whole_index(qkv, 1, 2, i) - 16);
  EXPECT_EQ(row, (std::vector<std::int64_t>{4, 5, 6, 7, 10, 11, 14, 15}));
}

TEST(TensorParallel, FlopsOfTheRanksAddUpToThoseOfOne) {
  for (const BlockKind kind : kinds)
    for (const OperatorRow& row : operator_table(kind, context(1)))
      for (const PassKind pass : {PassKind::forward, PassKind::backward})
        for (const std::int64_t t : {2, 4}) {
          const ExpertRows rows{128, context(1).local_experts(), {}}, part{128 / t, context(t).local_experts(), {}};
          const OperatorWork one = operator_work(row.op, pass, context(1), rows, true);
          const OperatorWork of_many = operator_work(row.op, pass, context(t), part, true);
          EXPECT_EQ(t * of_many.flops.value, one.flops.value) << name(row.op);
        }
}

TEST(TensorParallel, MessagesCarryTheRowsOfAllTokens) {
  const BlockContext c = context(2);
  const Bytes rows(64 * c.shape.hidden_size * 4);
  const auto work = [&](Op op, PassKind pass) { return operator_work(op, pass, c, {}, true); };
  for (const Op op : {Op::qkv, Op::mlp_fc1}) {
    EXPECT_EQ(work(op, PassKind::forward).gathered, rows);
    EXPECT_EQ(work(op, PassKind::forward).received, Bytes(0));
    EXPECT_EQ(work(op, PassKind::backward).gathered, rows);
    EXPECT_EQ(work(op, PassKind::backward).received, rows);
  }
  for (const Op op : {Op::out_projection, Op::mlp_fc2, Op::embedding}) {
    EXPECT_EQ(work(op, PassKind::forward).gathered, Bytes(0));
    EXPECT_EQ(work(op, PassKind::forward).received, rows);
    EXPECT_EQ(work(op, PassKind::backward).gathered, rows);
    EXPECT_EQ(work(op, PassKind::backward).received, Bytes(0));
  }
  EXPECT_EQ(work(Op::head, PassKind::forward).received, Bytes(2 * 64 * 3 * 4)) << "three numbers per token and rank";
  for (const BlockKind kind : kinds)
    for (const OperatorRow& row : operator_table(kind, context(1)))
      for (const PassKind pass : {PassKind::forward, PassKind::backward})
        EXPECT_EQ(operator_work(row.op, pass, context(1), {64, 4, {}}, true).gathered, Bytes(0)) << name(row.op);
}

}  // namespace
}  // namespace spillway
