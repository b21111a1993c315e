#include "run/operator_runner.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "device/ops/quantize.hpp"

namespace spillway {
namespace {

const OperatorRow& row_of(const std::vector<OperatorRow>& table, Op op) {
  return *std::find_if(table.begin(), table.end(), [op](const OperatorRow& row) { return row.op == op; });
}

}  // namespace

OperatorRunner::OperatorRunner(Setup setup, Engine& engine, std::span<const StageBlock> blocks, LaneTimer& timer)
    : setup_(setup), engine_(engine), blocks_(blocks), timer_(timer) {
  for (const StageBlock& b : blocks) {
    tables_[0].push_back(operator_table(b.kind, b.context));
    tables_[1].push_back(operator_table(b.kind, b.context, true));
  }
}

void OperatorRunner::begin_iteration(std::int64_t iteration) {
  iteration_ = iteration;
  reductions_ = 0;
  loss_ = 0;
  dispatches_.clear();
  gate_loads_.clear();
  conservation_ = {};
}

StepPlan::Gate OperatorRunner::gate(int micro_batch, int block) const {
  const Dispatch& d = dispatches_.at({micro_batch, block});
  return {d.table, d.offers, engine_.communicators.expert_forward.rank()};
}

const device::Group& OperatorRunner::expert_group(const Instruction& instruction) const {
  const device::Communicators& c = engine_.communicators;
  if (instruction.recompute) return c.expert_recompute;
  return instruction.pass == PassKind::forward ? c.expert_forward : c.expert_backward;
}

const device::Group& OperatorRunner::tensor_group(const Instruction& instruction) const {
  const device::Communicators& c = engine_.communicators;
  if (instruction.recompute) return c.tensor_recompute;
  return instruction.pass == PassKind::forward ? c.tensor_forward : c.tensor_backward;
}

const OperatorRow& OperatorRunner::row(int block, const Instruction& i) const {
  return row_of(tables_[i.slice >= 0 || i.op == Op::sum_slices ? 1 : 0][block], i.op);
}

std::int64_t OperatorRunner::sequence(int micro_batch, std::int64_t position) const {
  const Case& c = setup_.run_case;
  return (std::int64_t{micro_batch} * c.grid.data_parallel + engine_.communicators.here.data) *
             c.training.micro_batch_size +
         position;
}

void OperatorRunner::cast(int micro_batch, int block, const Instruction& instruction) {
  const device::TensorKey key{micro_batch, block, instruction.subject};
  device::ActivationStore& store = engine_.activations;
  timer_.set_mitigation(true);
  timer_.set_copied(store.copied(key), store.ready(key));
  const device::ActivationStore::Small form = store.small(key);
  const Seconds end = timer_.compute(store.ready(key), [&] {
    if (instruction.action == Action::quantize)
      device::ops::quantize(timer_.stream(), store.get(key), form.values, form.scales);
    else
      device::ops::dequantize(timer_.stream(), form.values, form.scales, store.get(key));
  });
  store.set_ready(key, end);
}

void OperatorRunner::run(int micro_batch, int block, const Instruction& instruction, const ExpertRows& rows,
                         Part part) {
  engine_.network.look();
  const OperatorRow& of_table = row(block, instruction);
  const Pass& pass = instruction.pass == PassKind::forward ? of_table.forward : of_table.backward;
  Call call{micro_batch, block, blocks_[block], instruction, Seconds(0), part};
  device::ActivationStore& store = engine_.activations;
  Seconds copied, otherwise;
  for (const auto* list : {&pass.reads, &pass.writes, &pass.scratch})
    for (const Tensor t : *list) {
      const device::TensorKey key{micro_batch, block, t};
      if (!store.holds(key)) continue;
      const auto begun = timer_.clock().now();
      if (store.wait(key)) timer_.waited_for_copy(timer_.clock().now() - begun);
      copied = std::max(copied, store.copied(key));
      if (store.copied(key) < store.ready(key)) otherwise = std::max(otherwise, store.ready(key));
    }
  call.ready = std::max(copied, otherwise);
  timer_.set_copied(copied, otherwise);
  timer_.set_mitigation(instruction.recompute);
  if (instruction.recompute && of_table.collective == Collective::none &&
      device::injected(device::Fault::skipped_recompute))
    return;

  const bool forwards = instruction.pass == PassKind::forward;
  const Seconds end = of_table.collective == Collective::tensor_parallel
                          ? (forwards ? tensor_forward(call) : tensor_backward(call))
                          : (forwards ? forward(call) : backward(call));
  if (part == Part::begin) return;
  for (const Tensor t : pass.writes) store.set_ready({micro_batch, block, t}, end);
  timer_.count_model_flops(instruction, call.where.context, rows);
}

Seconds OperatorRunner::forward(const Call& call) {
  switch (call.instruction.op) {
    case Op::gate:
      return gate(call);
    case Op::dispatch:
      return dispatch_forward(call);
    case Op::combine:
      return combine_forward(call);
    case Op::router:
    case Op::fc1:
    case Op::swiglu:
    case Op::fc2:
      return timer_.compute(call.ready, [&] { experts_forward(call); });
    case Op::unpermute:
      return timer_.compute(call.ready, [&] { unpermute_forward(call); });
    case Op::embedding:
    case Op::synthetic_input:
    case Op::final_norm:
    case Op::head:
    case Op::square_loss:
      return timer_.compute(call.ready, [&] { ends_forward(call); });
    default:
      return timer_.compute(call.ready, [&] { dense_forward(call); });
  }
}

Seconds OperatorRunner::backward(const Call& call) {
  switch (call.instruction.op) {
    case Op::gate:
      return call.ready;
    case Op::sum_slices:
      return timer_.compute(call.ready, [&] { sum_slices(call); });
    case Op::dispatch:
      return dispatch_backward(call);
    case Op::combine:
      return combine_backward(call);
    case Op::router:
    case Op::fc1:
    case Op::swiglu:
    case Op::fc2:
      return timer_.compute(call.ready, [&] { experts_backward(call); });
    case Op::unpermute:
      return timer_.compute(call.ready, [&] { unpermute_backward(call); });
    case Op::embedding:
    case Op::synthetic_input:
    case Op::final_norm:
    case Op::head:
    case Op::square_loss:
      return timer_.compute(call.ready, [&] { ends_backward(call); });
    default:
      return timer_.compute(call.ready, [&] { dense_backward(call); });
  }
}

}  // namespace spillway
