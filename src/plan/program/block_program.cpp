#include "plan/program/block_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"

namespace spillway {
namespace {

using Table = std::vector<OperatorRow>;

bool contains(const std::vector<Tensor>& list, Tensor t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

/// A step of a pass before its memory is planned.
struct Step {
  const OperatorRow* row;
  PassKind direction;
  bool recompute;  ///< a forward pass repeated inside backward
  const Pass& pass() const { return direction == PassKind::forward ? row->forward : row->backward; }
};

/// Orders the backward pass: every operator's backward from last to first, each preceded by the forward passes that
/// bring back what it misses.
class BackwardOrder {
 public:
  BackwardOrder(const Table& table, TensorSet keep) : table_(table), available_(keep) {
    available_.insert(Tensor::block_input);
    for (const OperatorRow& row : table)
      for (const Tensor t : row.forward.writes) forward_tensors_.insert(t);
    forward_tensors_.insert(Tensor::block_input);
  }

  std::vector<Step> run() {
    for (auto row = table_.rbegin(); row != table_.rend(); ++row) {
      if (row->backward.reads.empty() && row->backward.writes.empty()) continue;
      for (const Tensor t : row->backward.reads) provide(t);
      steps_.push_back({&*row, PassKind::backward, false});
    }
    return steps_;
  }
  /// Tensors kept from forward that some step reads.
  TensorSet used() const { return used_; }

 private:
  void provide(Tensor t) {
    if (!forward_tensors_.contains(t)) return;  // a gradient: made by the backward pass itself
    if (available_.contains(t)) {
      if (!remade_.contains(t)) used_.insert(t);
      return;
    }
    const auto producer = std::find_if(table_.begin(), table_.end(),
                                       [t](const OperatorRow& row) { return contains(row.forward.writes, t); });
    ensure(producer != table_.end(), "no operator makes {}", name(t));
    for (const Tensor input : producer->forward.reads) provide(input);
    steps_.push_back({&*producer, PassKind::forward, true});
    for (const Tensor made : producer->forward.writes) {
      if (!available_.contains(made)) remade_.insert(made);
      available_.insert(made);
    }
  }

  const Table& table_;
  TensorSet available_, remade_, used_, forward_tensors_;
  std::vector<Step> steps_;
};

/// Plans the memory of a pass: a tensor lives from the step that writes it to the last that uses it. `live` names those
/// that are there before, `stays` those that outlive the pass.
std::vector<Instruction> plan_memory(const std::vector<Step>& steps, TensorSet live, TensorSet stays) {
  const auto used_later = [&steps](std::size_t after, Tensor t) {
    for (std::size_t i = after + 1; i < steps.size(); ++i)
      if (contains(steps[i].pass().reads, t) || contains(steps[i].pass().writes, t)) return true;
    return false;
  };
  std::vector<Instruction> list;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Pass& pass = steps[i].pass();
    Instruction instruction{steps[i].row->op, steps[i].direction, steps[i].recompute, {}, pass.scratch};
    for (const Tensor t : pass.writes)
      if (!live.contains(t)) {
        live.insert(t);
        instruction.allocate.push_back(t);
      }
    instruction.allocate.insert(instruction.allocate.end(), pass.scratch.begin(), pass.scratch.end());
    std::vector<Tensor> touched = pass.reads;
    touched.insert(touched.end(), pass.writes.begin(), pass.writes.end());
    for (const Tensor t : touched)
      if (live.contains(t) && !stays.contains(t) && !used_later(i, t)) {
        live.erase(t);
        instruction.release.push_back(t);
      }
    list.push_back(std::move(instruction));
  }
  return list;
}

std::vector<Instruction> plan_forward(const Table& table, TensorSet kept) {
  std::vector<Step> steps;
  steps.reserve(table.size());
  for (const OperatorRow& row : table) steps.push_back({&row, PassKind::forward, false});
  kept.insert(Tensor::block_output);
  return plan_memory(steps, {Tensor::block_input}, kept);
}

std::vector<Instruction> plan_backward(const std::vector<Step>& steps, BlockKind kind, TensorSet kept) {
  const bool d_residual_comes_in = kind != BlockKind::head && kind != BlockKind::square_loss;
  const bool d_residual_goes_out = kind != BlockKind::embedding && kind != BlockKind::synthetic_input;
  if (d_residual_comes_in) kept.insert(Tensor::d_residual);
  return plan_memory(steps, kept, d_residual_goes_out ? TensorSet{Tensor::d_residual} : TensorSet{});
}

}  // namespace

bool Instruction::allocates(Tensor tensor) const { return contains(allocate, tensor); }

BlockProgram compile(BlockKind kind, const BlockContext& context, TensorSet keep) {
  const Table table = operator_table(kind, context);
  BackwardOrder order(table, keep);
  const std::vector<Step> steps = order.run();
  BlockProgram program;
  program.kept = order.used();
  program.forward = plan_forward(table, program.kept);
  program.backward = plan_backward(steps, kind, program.kept);
  const auto gate = std::find_if(program.forward.begin(), program.forward.end(),
                                 [](const Instruction& i) { return i.op == Op::gate; });
  program.gate = static_cast<std::size_t>(gate - program.forward.begin());
  return program;
}

std::string to_text(const std::vector<Instruction>& instructions) {
  std::string text;
  for (const Instruction& i : instructions) {
    text += fmt::format("{}{}", name(i.op), i.recompute ? " again" : i.pass == PassKind::backward ? " backward" : "");
    for (const Tensor t : i.allocate) text += fmt::format(" +{}", name(t));
    for (const Tensor t : i.release) text += fmt::format(" -{}", name(t));
    text += '\n';
  }
  return text;
}

}  // namespace spillway
