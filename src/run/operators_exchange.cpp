// Dispatch and combine: rows to the experts and back, in two parts where something else is issued while they travel.
#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "device/collectives.hpp"
#include "device/fault.hpp"
#include "device/ops/elementwise.hpp"
#include "device/ops/rows.hpp"
#include "run/operator_runner.hpp"

namespace spillway {

namespace ops = device::ops;
using device::Fault;
using device::Matrix;

template <class Send>
std::optional<Seconds> OperatorRunner::message(const Call& call, const Send& send) {
  device::Event& event = dispatches_.at({call.micro_batch, call.block}).exchange;
  if (call.part != Part::end) event = send();
  if (call.part == Part::begin) return std::nullopt;
  return way(call).alone ? event.end() : timer_.arrive(event);
}

OperatorRunner::Way OperatorRunner::way(const Call& call) {
  const BlockContext& c = call.where.context;
  const bool alone = c.expert_parallel == 1;
  return {alone, !alone && c.local_experts() > 1, call.instruction.slice >= 0, !c.weights_at_combine()};
}

void OperatorRunner::expect_same(const device::Group& members, const Call& call) const {
  if (!setup_.checks_order || members.size() == 1) return;
  const Instruction& i = call.instruction;
  const std::uint64_t mine =
      mix(static_cast<std::uint64_t>(i.op), static_cast<std::uint64_t>(i.pass), static_cast<std::uint64_t>(i.recompute),
          static_cast<std::uint64_t>(i.slice) + 1, static_cast<std::uint64_t>(call.micro_batch),
          static_cast<std::uint64_t>(call.block), static_cast<std::uint64_t>(reductions_));
  ensure(
      device::all_say(engine_.network, members, mine),
      "messages of a group in different orders: rank {} issues {} of micro-batch {}, block {}, while another rank of "
      "its group issues something else",
      members.world_ranks()[static_cast<std::size_t>(members.rank())], name(i), call.micro_batch, call.block);
}

device::Event OperatorRunner::exchange(const Call& call, const device::RowExchange& x, Seconds ready) {
  expect_same(engine_.communicators.expert_forward, call);
  const device::Group& group = expert_group(call.instruction);
  const std::int64_t row_bytes = x.sent.cols * 4 + (x.weighted ? 4 : 0);
  const auto& ranks = group.world_ranks();
  for (int i = 0; i < group.size(); ++i) {
    if (i == group.rank()) continue;
    const bool inside = setup_.node_of_rank[ranks[i]] == setup_.node_of_rank[ranks[group.rank()]];
    RankIteration& totals = timer_.totals();
    (inside ? totals.intra_node_bytes : totals.cross_node_bytes) += Bytes(x.sent_rows[i] * row_bytes);
  }
  return timer_.network(device::all_to_all(engine_.network, group, x, ready), LaneTimer::Message::exchange);
}

Seconds OperatorRunner::dispatch_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const Way w = way(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto arrived = message(call, [&] {
    const Matrix<float> rows = t(w.alone ? Tensor::fc1_input : Tensor::sent_rows);
    const Seconds packed = timer_.compute(call.ready, [&] {
      ops::gather_rows(stream, t(Tensor::mlp_norm_output), m.token_of_sent.data(), rows);
      if (w.weights)
        ops::gather_values(stream, t(Tensor::router_state), m.weight_of_sent.data(),
                           t(w.alone ? Tensor::row_weight : Tensor::slot_weight));
    });
    if (w.alone) return nothing_sent(packed);
    const Matrix<float> in = t(w.reorders ? Tensor::received_rows : Tensor::fc1_input);
    const Tensor in_weight = w.reorders ? Tensor::received_weight : Tensor::row_weight;
    return exchange(call,
                    {rows, m.sent_rows, in, m.received_rows, w.weights,
                     w.weights ? t(Tensor::slot_weight).data : nullptr, w.weights ? t(in_weight).data : nullptr},
                    packed);
  });
  if (!arrived) return call.ready;
  Seconds end = *arrived;
  if (w.reorders)
    end = timer_.compute(end, [&] {
      ops::scatter_rows(stream, t(Tensor::received_rows), m.expert_order.data(), t(Tensor::fc1_input));
      if (w.weights)
        ops::scatter_values(stream, t(Tensor::received_weight), m.expert_order.data(), t(Tensor::row_weight));
    });
  if (w.weights) {
    const Matrix<float> all = t(Tensor::row_weight);
    if (!call.instruction.recompute) conservation_.weight += std::accumulate(all.data, all.data + all.size(), 0.0);
    if (device::injected(Fault::wrong_router_weight) && all.size() > 1)
      std::rotate(all.data, all.data + 1, all.data + all.size());
  }
  if (device::injected(Fault::dropped_token) && m.rows() > 0)
    std::fill_n(t(Tensor::fc1_input).data, call.where.context.shape.hidden_size, 0.0f);
  return end;
}

Seconds OperatorRunner::dispatch_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const Way w = way(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto arrived = message(call, [&] {
    if (w.alone) return nothing_sent(call.ready);
    Seconds ready = call.ready;
    if (w.reorders)
      ready = timer_.compute(ready, [&] {
        ops::gather_rows(stream, t(Tensor::d_fc1_input), m.expert_order.data(), t(Tensor::received_rows));
        if (w.weights)
          ops::gather_values(stream, t(Tensor::d_row_weight), m.expert_order.data(), t(Tensor::received_weight));
      });
    const Tensor out_weight = w.reorders ? Tensor::received_weight : Tensor::d_row_weight;
    return exchange(call,
                    {t(w.reorders ? Tensor::received_rows : Tensor::d_fc1_input), m.received_rows, t(Tensor::sent_rows),
                     m.sent_rows, w.weights, w.weights ? t(out_weight).data : nullptr,
                     w.weights ? t(Tensor::slot_weight).data : nullptr},
                    ready);
  });
  if (!arrived) return call.ready;
  return timer_.compute(*arrived, [&] {
    const Matrix<float> rows = t(w.alone ? Tensor::d_fc1_input : Tensor::sent_rows);
    if (w.sliced)
      ops::scatter_rows(stream, rows, m.row_of_sent.data(), t(Tensor::d_sent_rows));
    else
      ops::sum_rows(stream, rows, m.position_matrix(), t(Tensor::d_mlp_norm_output),
                    !call.instruction.allocates(Tensor::d_mlp_norm_output));
    if (w.weights)
      ops::scatter_values(stream, t(w.alone ? Tensor::d_row_weight : Tensor::slot_weight), m.slot_of_sent.data(),
                          t(Tensor::d_router_weight));
  });
}

void OperatorRunner::sum_slices(const Call& call) {
  ops::sum_rows(timer_.stream(), tensor(call, Tensor::d_sent_rows), map(call).position_matrix(),
                tensor(call, Tensor::d_mlp_norm_output), !call.instruction.allocates(Tensor::d_mlp_norm_output));
}

Seconds OperatorRunner::combine_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const Way w = way(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const Tensor back = w.sliced ? Tensor::sent_rows : Tensor::returned_rows;
  const auto arrived = message(call, [&] {
    if (w.alone && w.sliced) return nothing_sent(call.ready);
    if (w.alone)
      return nothing_sent(
          timer_.compute(call.ready, [&] { ops::copy(stream, t(Tensor::expert_output), t(Tensor::returned_rows)); }));
    Seconds ready = call.ready;
    if (w.reorders)
      ready = timer_.compute(ready, [&] {
        ops::gather_rows(stream, t(Tensor::expert_output), m.expert_order.data(), t(Tensor::received_rows));
      });
    return exchange(call,
                    {t(w.reorders ? Tensor::received_rows : Tensor::expert_output), m.received_rows, t(back),
                     m.sent_rows},
                    ready);
  });
  if (!arrived) return call.ready;
  if (!w.sliced) return *arrived;
  return timer_.compute(*arrived, [&] {
    ops::scatter_rows(stream, t(w.alone ? Tensor::expert_output : back), m.row_of_sent.data(),
                      t(Tensor::returned_rows));
  });
}

Seconds OperatorRunner::combine_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const device::RowMap& m = map(call);
  const Way w = way(call);
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const Tensor out = w.sliced ? Tensor::sent_rows : Tensor::d_returned_rows;
  const auto arrived = message(call, [&] {
    if (w.alone && !w.sliced)
      return nothing_sent(timer_.compute(call.ready, [&] {
        ops::copy(stream, t(Tensor::d_returned_rows), t(Tensor::d_expert_output));
      }));
    Seconds ready = call.ready;
    if (w.sliced)
      ready = timer_.compute(ready, [&] {
        ops::gather_rows(stream, t(Tensor::d_returned_rows), m.row_of_sent.data(),
                         t(w.alone ? Tensor::d_expert_output : out));
      });
    if (w.alone) return nothing_sent(ready);
    return exchange(call,
                    {t(out), m.sent_rows, t(w.reorders ? Tensor::received_rows : Tensor::d_expert_output),
                     m.received_rows},
                    ready);
  });
  if (!arrived) return call.ready;
  if (!w.reorders) return *arrived;
  return timer_.compute(*arrived, [&] {
    ops::scatter_rows(stream, t(Tensor::received_rows), m.expert_order.data(), t(Tensor::d_expert_output));
  });
}

void OperatorRunner::drain(int micro_batch, int block, const Instruction& instruction) {
  const Call call{micro_batch, block, blocks_[block], instruction, Seconds(0)};
  const BlockContext& context = call.where.context;
  if (row(block, instruction).collective == Collective::tensor_parallel) return drain_tensor(call);
  if (instruction.op == Op::gate) gate(call);
  const bool moves_rows = instruction.op == Op::dispatch || instruction.op == Op::combine;
  if (!moves_rows || context.expert_parallel == 1) return;
  const device::RowMap& m = map(call);
  const bool to_experts = (instruction.op == Op::dispatch) == (instruction.pass == PassKind::forward);
  const bool weights = instruction.op == Op::dispatch && !context.weights_at_combine();
  const std::int64_t h = context.shape.hidden_size, sent = m.rows_sent(), received = m.rows();
  const std::int64_t out = to_experts ? sent : received, in = to_experts ? received : sent;
  scratch_out_.resize(std::max<std::size_t>(scratch_out_.size(), out * (h + 1)));
  scratch_in_.resize(std::max<std::size_t>(scratch_in_.size(), in * (h + 1)));
  float* out_data = scratch_out_.data();
  float* in_data = scratch_in_.data();
  exchange(call,
           {{out_data, out, h},
            to_experts ? m.sent_rows : m.received_rows,
            {in_data, in, h},
            to_experts ? m.received_rows : m.sent_rows,
            weights,
            out_data + out * h,
            in_data + in * h},
           Seconds(0))
      .wait();
}

}  // namespace spillway
