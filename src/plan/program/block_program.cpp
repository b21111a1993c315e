#include "plan/program/block_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "plan/program/backward_order.hpp"
#include "plan/program/lifetimes.hpp"

namespace spillway {
namespace {

/// Tensors that come into backward from the next block, and leave for the previous one.
bool d_residual_comes_in(BlockKind kind) { return kind != BlockKind::head && kind != BlockKind::square_loss; }
bool d_residual_goes_out(BlockKind kind) { return kind != BlockKind::embedding && kind != BlockKind::synthetic_input; }

/// The forward pass in order, a dispatch in slices repeated for each.
std::vector<Step> forward_steps(const Table& table, int slices) {
  std::vector<Step> steps;
  const auto in_slices = [slices](const OperatorRow& row) { return slices > 0 && runs_in_slices(row.op); };
  for (auto row = table.begin(); row != table.end();) {
    const auto end =
        std::find_if(row, table.end(), [&](const OperatorRow& r) { return in_slices(r) != in_slices(*row); });
    const int repeats = in_slices(*row) ? slices : 1;
    for (int slice = 0; slice < repeats; ++slice)
      for (auto r = row; r != end; ++r)
        if (!r->forward.reads.empty() || !r->forward.writes.empty()) {
          const int number = in_slices(*r) ? slice : -1;
          steps.push_back({&*r, PassKind::forward, false, number, number});
        }
    row = end;
  }
  return steps;
}

std::size_t gate_index(const std::vector<Step>& steps) {
  const auto gate = std::find_if(steps.begin(), steps.end(), [](const Step& s) { return s.row->op == Op::gate; });
  return static_cast<std::size_t>(gate - steps.begin());
}

/// What is saved, in which form.
struct Saved {
  TensorSet kept, offloaded, quantized;
};

Saved saved(const TensorSet& used, const Mitigations& m) {
  TensorSet moved = m.offload | m.quantize;
  return {used - moved, used & m.offload, used & m.quantize};
}

/// Everything the mitigations save, without the experts' side where it lives in slices.
TensorSet available(const Mitigations& m, bool sliced) {
  TensorSet set = m.available();
  set.insert(Tensor::block_input);
  if (sliced)
    for (std::size_t t = 0; t < tensor_count; ++t)
      if (lives_in_slices(static_cast<Tensor>(t))) set.erase(static_cast<Tensor>(t));
  return set;
}

/// `after` with everything that the program before the gate has already decided for good.
Mitigations refine(const Mitigations& after, const Saved& before, const TensorSet& settled) {
  Mitigations m = after;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto t = static_cast<Tensor>(i);
    if (!settled.contains(t) || before.kept.contains(t)) continue;
    m.set(t, before.offloaded.contains(t)   ? Treatment::offload
             : before.quantized.contains(t) ? Treatment::quantize
                                            : Treatment::recompute);
  }
  return m;
}

std::vector<Instruction> reloads(const TensorSet& offloaded) {
  std::vector<Instruction> list;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto t = static_cast<Tensor>(i);
    if (offloaded.contains(t)) list.push_back(movement(Action::reload, t));
  }
  return list;
}

}  // namespace

bool Instruction::allocates(Tensor tensor) const {
  return std::find(allocate.begin(), allocate.end(), tensor) != allocate.end();
}

std::string_view name(Action action) {
  static constexpr std::array<std::string_view, 6> names = {"run",    "drop",     "offload",
                                                            "reload", "quantize", "dequantize"};
  return names[static_cast<std::size_t>(action)];
}

std::string_view name(const Instruction& i) { return i.action == Action::run ? name(i.op) : name(i.action); }

TensorSet settled_at_gate(BlockKind kind, const BlockContext& context) {
  const Table table = operator_table(kind, context);
  TensorSet touched;
  for (const OperatorRow& row : table) {
    if (row.op == Op::gate) {  // those touched again later are not settled
      for (auto later = &row; later != table.data() + table.size(); ++later)
        for (const auto* list : {&later->forward.reads, &later->forward.writes})
          for (const Tensor t : *list) touched.erase(t);
      return touched;
    }
    for (const auto* list : {&row.forward.reads, &row.forward.writes})
      for (const Tensor t : *list) touched.insert(t);
  }
  return {};
}

BlockCompiler::BlockCompiler(BlockKind kind, const BlockContext& context)
    : kind_(kind),
      whole_(operator_table(kind, context)),
      in_slices_(operator_table(kind, context, true)),
      settled_(settled_at_gate(kind, context)) {}

BlockProgram BlockCompiler::compile(const BlockDecision& decision) const {
  const bool sliced = decision.after.tiles_per_slice > 0 && kind_ == BlockKind::moe;
  ensure(!sliced || decision.slices > 0, "a dispatch in slices of {} tiles needs their number",
         decision.after.tiles_per_slice);
  const bool changes = !(decision.before == decision.after);
  const Table& table = sliced ? in_slices_ : whole_;

  // 1. what backward needs, given what is saved
  Saved first;
  Mitigations after = decision.after;
  if (changes) {
    first = saved(BackwardOrder(whole_, available(decision.before, false), 0).used(), decision.before);
    after = refine(decision.after, first, settled_);
  }
  BackwardOrder order(table, available(after, sliced), sliced ? decision.slices : 0);
  const Saved final = saved(order.used(), after);

  // 2. forward: up to the gate by the first decision, then by the second
  BlockProgram program;
  const std::vector<Step> steps = forward_steps(table, sliced ? decision.slices : 0);
  const std::size_t gate = gate_index(steps);
  Lifetimes forward(steps, {Tensor::block_input});
  const auto outliving = [](const Saved& s) {
    TensorSet kept = s.kept;
    kept.insert(Tensor::block_output);
    return Lifetimes::Fate{kept, s.offloaded, s.quantized};
  };
  if (gate < steps.size() && changes) {
    forward.plan(gate + 1, outliving(first));
    forward.settle(gate + 1, outliving(final));
  }
  forward.plan(steps.size(), outliving(final));
  program.forward = std::move(forward).instructions();
  const auto at = std::find_if(program.forward.begin(), program.forward.end(),
                               [](const Instruction& i) { return i.action == Action::run && i.op == Op::gate; });
  program.gate = static_cast<std::size_t>(at - program.forward.begin());

  // 3. backward: what was offloaded is back, what was quantized returns just before its first use
  TensorSet live = final.kept | final.offloaded;
  if (d_residual_comes_in(kind_)) live.insert(Tensor::d_residual);
  Lifetimes backward(order.steps(), live, final.quantized);
  backward.plan(order.steps().size(),
                {d_residual_goes_out(kind_) ? TensorSet{Tensor::d_residual} : TensorSet{}, {}, {}});
  program.backward = std::move(backward).instructions();
  program.reloads = reloads(final.offloaded);
  program.kept = final.kept;
  program.offloaded = final.offloaded;
  program.quantized = final.quantized;
  return program;
}

std::string to_text(const std::vector<Instruction>& instructions) {
  std::string text;
  for (const Instruction& i : instructions) {
    text += name(i);
    if (i.action != Action::run && i.action != Action::drop) text += fmt::format(" {}", name(i.subject));
    if (i.action == Action::run && (i.recompute || i.pass == PassKind::backward))
      text += i.recompute ? " again" : " backward";
    if (i.slice >= 0) text += fmt::format(" slice {}", i.slice);
    for (const Tensor t : i.allocate) text += fmt::format(" +{}", name(t));
    for (const Tensor t : i.release) text += fmt::format(" -{}", name(t));
    text += '\n';
  }
  return text;
}

}  // namespace spillway
