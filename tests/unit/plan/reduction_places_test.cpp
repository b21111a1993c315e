// What hides reductions: computation between the messages of a backward pass, at balance.
#include "plan/reduction_places.hpp"

#include <gtest/gtest.h>

#include "plan/cost/time_model.hpp"
#include "program_fixtures.hpp"

namespace spillway {
namespace {

/// Without launches or norms that would hide in them: seconds add up.
MachineProfile machine() {
  MachineProfile m;
  m.launch = Seconds(1e-9);
  return m;
}

Seconds backward(const BlockContext& c, std::initializer_list<Op> ops) {
  const ExpertRows balance{c.routed_rows(), c.local_experts(), {}};
  Seconds sum;
  for (const Op op : ops) {
    const OperatorWork w = operator_work(op, PassKind::backward, c, balance, true);
    sum += compute_seconds(machine(), w.flops, w.bytes);
  }
  return sum;
}

Seconds after_message(const BlockContext& c, Op op) {
  const OperatorWork w = operator_work(op, PassKind::backward, c, {c.routed_rows(), c.local_experts(), {}}, true);
  return compute_seconds(machine(), Flops(0), w.bytes_after_message);
}

TEST(ReductionPlaces, OfABlockWithExpertsAreBehindCombineAndBehindDispatch) {
  const BlockContext c = moe_block(4, 8, Inventory::standard);
  const ReductionPlaces places = reduction_places({BlockKind::moe, 0, c}, machine());
  EXPECT_NEAR(places.first.value,
              (after_message(c, Op::combine) + backward(c, {Op::fc2, Op::swiglu, Op::fc1, Op::dispatch})).value, 1e-12);
  EXPECT_NEAR(places.second.value,
              (after_message(c, Op::dispatch) +
               backward(c, {Op::mlp_fc2, Op::mlp_swiglu, Op::mlp_fc1, Op::router, Op::mlp_norm, Op::out_projection,
                            Op::attention_core, Op::qkv, Op::attention_norm}))
                  .value,
              1e-12);
}

TEST(ReductionPlaces, EndAtTheFirstMessageOfATensorParallelGroup) {
  BlockContext c = moe_block(4, 8, Inventory::standard);
  c.tensor_parallel = 2;
  c.mlp_size = 0;
  const ReductionPlaces places = reduction_places({BlockKind::moe, 0, c}, machine());
  EXPECT_NEAR(places.second.value, (after_message(c, Op::dispatch) + backward(c, {Op::router, Op::mlp_norm})).value,
              1e-12);
}

TEST(ReductionPlaces, OfOtherBlocksAreBeforeThem) {
  BlockContext c = moe_block(4, 8, Inventory::standard);
  c.mlp_size = 64;
  const ReductionPlaces places = reduction_places({BlockKind::dense, 0, c}, machine());
  EXPECT_NEAR(places.first.value,
              backward(c, {Op::mlp_fc2, Op::mlp_swiglu, Op::mlp_fc1, Op::mlp_norm, Op::out_projection,
                           Op::attention_core, Op::qkv, Op::attention_norm})
                  .value,
              1e-12);
  EXPECT_EQ(places.second, Seconds(0));
}

}  // namespace
}  // namespace spillway
