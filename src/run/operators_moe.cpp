// Router, gate table, dispatch, experts and combine.
#include <algorithm>

#include "base/error.hpp"
#include "device/collectives.hpp"
#include "device/fault.hpp"
#include "device/gemm.hpp"
#include "device/ops/elementwise.hpp"
#include "device/ops/router.hpp"
#include "device/ops/rows.hpp"
#include "device/ops/swiglu.hpp"
#include "run/load_source.hpp"
#include "run/operator_runner.hpp"

namespace spillway {

namespace ops = device::ops;
using device::Fault;
using device::Matrix;
using device::Transpose;

namespace {

/// Numbers that a member adds to its rows per expert.
constexpr std::int64_t offer_numbers = 7;
/// Beside the set of quantized tensors.
constexpr std::int64_t in_turn_bit = std::int64_t{1} << 62;
static_assert(tensor_count < 62);

void pack(const Offer& offer, std::int64_t* to) {
  const Budget& b = offer.budget;
  to[0] = b.forward.value;
  to[1] = b.held.value;
  to[2] = b.ready.value;
  to[3] = b.backward.value;
  to[4] = b.host.value;
  to[5] = static_cast<std::int64_t>(offer.offloaded.bits());
  to[6] = static_cast<std::int64_t>(offer.quantized.bits()) | (offer.in_turn ? in_turn_bit : 0);
}

Offer unpack(const std::int64_t* from) {
  return {{Bytes(from[0]), Bytes(from[1]), Bytes(from[2]), Bytes(from[3]), Bytes(from[4])},
          TensorSet::of_bits(static_cast<unsigned long long>(from[5])),
          TensorSet::of_bits(static_cast<unsigned long long>(from[6] & ~in_turn_bit)),
          (from[6] & in_turn_bit) != 0};
}

/// A fault: the first two local experts use each other's weights.
void grouped_gemm_swapped(device::Stream& stream, Matrix<const float> a, std::span<const std::int64_t> offsets,
                          Matrix<const float> w, Matrix<float> c) {
  const std::int64_t local = static_cast<std::int64_t>(offsets.size()) - 1, height = w.rows / local;
  for (std::int64_t g = 0; g < local; ++g) {
    const std::int64_t other = g < 2 && local >= 2 ? 1 - g : g;
    device::gemm(stream, a.slice(offsets[g], offsets[g + 1] - offsets[g]), Transpose::no,
                 w.slice(other * height, height), Transpose::no, 0, c.slice(offsets[g], offsets[g + 1] - offsets[g]));
  }
}

}  // namespace

std::vector<std::int32_t> OperatorRunner::imposed_choices(const Call& call) const {
  const Case& c = setup_.run_case;
  return choices_of(setup_.routing, routing_problem(c), {iteration_, call.where.layer, 0},
                    tokens_of(c, engine_.communicators.here, call.micro_batch));
}

Seconds OperatorRunner::gate(const Call& call) {
  device::reach(device::Phase::gate);
  const BlockContext& context = call.where.context;
  const std::int64_t k = context.shape.num_experts_per_tok, experts = context.shape.num_experts;
  const device::Group& group = engine_.communicators.expert_forward;
  expect_same(group, call);

  // 1. this rank's choices, imposed by the workload
  const std::vector<std::int32_t> choices = imposed_choices(call);
  const std::int64_t numbers = experts + offer_numbers;
  std::vector<std::int64_t> mine(numbers, 0);
  for (const std::int32_t e : choices) ++mine[e];
  pack(offer_, mine.data() + experts);

  // 2. the group's table: rows per expert, and what each member can afford
  std::vector<std::int64_t> gathered(group.size() * numbers);
  const Seconds end =
      timer_.arrive(timer_.network(device::all_gather(engine_.network, group, mine, gathered, call.ready)));
  Dispatch d{{std::vector<std::int64_t>(group.size() * experts), group.size(), experts}, {}, {}, {}, {}};
  for (int i = 0; i < group.size(); ++i) {
    std::copy_n(gathered.begin() + i * numbers, experts, d.table.rows.begin() + i * experts);
    d.offers.push_back(unpack(gathered.data() + i * numbers + experts));
  }

  // 3. what is known without messages must agree with what they say: check the next member's row
  const int next = (group.rank() + 1) % group.size();
  const Case& c = setup_.run_case;
  const auto expected = rows_of(setup_.routing, routing_problem(c), {iteration_, call.where.layer, 0},
                                tokens_of(c, engine_.grid.coordinates(group.world_ranks()[next]), call.micro_batch));
  ensure(std::equal(expected.begin(), expected.end(), d.table.rows.begin() + next * experts),
         "gate table: rows per expert of rank {} differ from the workload's (iteration {}, layer {}, micro-batch {})",
         group.world_ranks()[next], iteration_, call.where.layer, call.micro_batch);

  d.whole = device::make_row_map({choices.data(), context.local_tokens(), k},
                                 {d.table.rows.data(), group.size(), experts}, group.rank());
  gate_loads_.push_back({call.micro_batch, {max_over_mean(d.table)}});
  dispatches_[{call.micro_batch, call.block}] = std::move(d);
  conservation_.tokens += context.local_tokens();
  return end;
}

void OperatorRunner::cut(int micro_batch, int block, std::int64_t tiles_per_slice, int slices) {
  Dispatch& d = dispatches_.at({micro_batch, block});
  for (int j = 0; j < slices; ++j)
    d.slices.push_back(device::make_row_map(d.whole.choice_matrix(),
                                            {d.table.rows.data(), d.table.members, d.table.experts},
                                            engine_.communicators.expert_forward.rank(), Slice{tiles_per_slice, j}));
}

void OperatorRunner::experts_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto w = [&](Parameter name) { return value(call, name); };
  const bool weights = !call.where.context.weights_at_combine();
  switch (call.instruction.op) {
    case Op::router: {
      const BlockContext& c = call.where.context;
      const std::vector<std::int32_t> choices = imposed_choices(call);
      ops::router_forward(stream, t(Tensor::mlp_norm_output), w(Parameter::router_weight),
                          {choices.data(), c.local_tokens(), c.shape.num_experts_per_tok}, t(Tensor::router_state));
      break;
    }
    case Op::fc1:
      if (device::injected(Fault::swapped_experts))
        grouped_gemm_swapped(stream, t(Tensor::fc1_input), map(call).offsets, w(Parameter::fc1_weight),
                             t(Tensor::fc1_output));
      else
        device::grouped_gemm(stream, t(Tensor::fc1_input), map(call).offsets, w(Parameter::fc1_weight), Transpose::no,
                             t(Tensor::fc1_output));
      break;
    case Op::swiglu:
      ops::swiglu_forward(stream, t(Tensor::fc1_output), weights ? t(Tensor::row_weight).data : nullptr,
                          t(Tensor::fc2_input));
      break;
    case Op::fc2:
      device::grouped_gemm(stream, t(Tensor::fc2_input), map(call).offsets, w(Parameter::fc2_weight), Transpose::no,
                           t(Tensor::expert_output));
      break;
    default:
      break;
  }
}

void OperatorRunner::experts_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto w = [&](Parameter name) { return value(call, name); };
  const auto g = [&](Parameter name) { return gradient(call, name); };
  const bool weights = !call.where.context.weights_at_combine();
  switch (call.instruction.op) {
    case Op::router:
      ops::router_backward(stream, t(Tensor::mlp_norm_output), w(Parameter::router_weight), m.choice_matrix(),
                           t(Tensor::router_state), t(Tensor::d_router_weight), t(Tensor::d_router_logits),
                           t(Tensor::d_mlp_norm_output), g(Parameter::router_weight),
                           !call.instruction.allocates(Tensor::d_mlp_norm_output));
      break;
    case Op::fc1:
      device::grouped_gemm(stream, t(Tensor::d_fc1_output), m.offsets, w(Parameter::fc1_weight), Transpose::yes,
                           t(Tensor::d_fc1_input));
      device::grouped_gemm_weight_gradient(stream, t(Tensor::fc1_input), t(Tensor::d_fc1_output), m.offsets,
                                           g(Parameter::fc1_weight));
      break;
    case Op::swiglu:
      ops::swiglu_backward(stream, t(Tensor::fc1_output), weights ? t(Tensor::row_weight).data : nullptr,
                           t(Tensor::d_fc2_input), t(Tensor::d_fc1_output),
                           weights ? t(Tensor::d_row_weight).data : nullptr);
      break;
    case Op::fc2:
      device::grouped_gemm(stream, t(Tensor::d_expert_output), m.offsets, w(Parameter::fc2_weight), Transpose::yes,
                           t(Tensor::d_fc2_input));
      device::grouped_gemm_weight_gradient(stream, t(Tensor::fc2_input), t(Tensor::d_expert_output), m.offsets,
                                           g(Parameter::fc2_weight));
      break;
    default:
      break;
  }
}

void OperatorRunner::unpermute_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  if (call.instruction.allocates(Tensor::block_output))
    ops::copy(stream, t(Tensor::mlp_norm_input), t(Tensor::block_output));
  if (!call.where.context.weights_at_combine()) {
    ops::sum_rows(stream, t(Tensor::returned_rows), m.position_matrix(), t(Tensor::block_output), true);
    return;
  }
  const Matrix<float> weight{t(Tensor::slot_weight).data, m.tokens, m.choices_per_token};
  ops::gather_values(stream, t(Tensor::router_state), m.weight_of_slot.data(), weight);
  ops::weighted_sum_rows(stream, t(Tensor::returned_rows), m.position_matrix(), weight, t(Tensor::block_output), true);
}

void OperatorRunner::unpermute_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  if (!call.where.context.weights_at_combine()) {
    ops::gather_rows(stream, t(Tensor::d_residual), m.token_of_sent.data(), t(Tensor::d_returned_rows));
    return;
  }
  const Matrix<float> weight{t(Tensor::slot_weight).data, m.tokens, m.choices_per_token};
  ops::gather_values(stream, t(Tensor::router_state), m.weight_of_slot.data(), weight);
  ops::weighted_sum_rows_backward(stream, t(Tensor::returned_rows), m.position_matrix(), weight, t(Tensor::d_residual),
                                  t(Tensor::d_returned_rows), t(Tensor::d_router_weight));
}

}  // namespace spillway
