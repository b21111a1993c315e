#include "plan/work_order.hpp"

#include <algorithm>

#include "plan/fused_window.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

bool is_message(Kind kind) { return kind != Kind::forward && kind != Kind::reload && kind != Kind::backward; }

bool is_gate(const Instruction& i) {
  return i.action == Action::run && i.op == Op::gate && i.pass == PassKind::forward && !i.recompute;
}

bool is_backward(const WorkStep& step, Op op) {
  const Instruction& i = *step.instruction;
  return i.action == Action::run && i.op == op && i.pass == PassKind::backward;
}

WorkStep step_of(const Item& item, const std::vector<IssuedPart>& list, std::size_t n) {
  return {item, list[n].instruction, list[n].part, n == 0, n + 1 == list.size(), is_gate(*list[n].instruction)};
}

WorkStep step_of(const Item& item, const std::vector<Instruction>& list, std::size_t n) {
  return {item, &list[n], Part::whole, n == 0, n + 1 == list.size(), is_gate(list[n])};
}

}  // namespace

void WorkOrder::begin_iteration(std::int64_t iteration) {
  plan_.begin_iteration(iteration);
  fill();
}

void WorkOrder::advance() {
  if (++at_ < steps_.size()) return;
  const bool both = plan_.current().beside_next;
  plan_.advance();
  if (both) plan_.advance();
  fill();
}

void WorkOrder::fill() {
  steps_.clear();
  at_ = 0;
  for (; !plan_.finished(); plan_.advance()) {
    if (plan_.prefers_in_turn()) plan_.take_in_turn();
    make_steps();
    if (!steps_.empty()) return;
    if (plan_.current().beside_next) plan_.advance();
  }
}

void WorkOrder::make_steps() {
  const Item& item = plan_.current();
  const int mb = item.micro_batch, b = item.block;
  if (is_message(item.kind)) return steps_.push_back({item, nullptr, Part::whole, true, true, false});
  if (item.kind == Kind::forward) {
    plan_.decide(mb, b);
    if (item.beside_next) return add_window(0, 0);
  }
  const BlockProgram& program = plan_.program(mb, b);
  const auto& list = item.kind == Kind::forward  ? program.forward
                     : item.kind == Kind::reload ? program.reloads
                                                 : program.backward;
  for (std::size_t n = 0; n < list.size(); ++n) steps_.push_back(step_of(item, list, n));
  if (item.kind == Kind::backward) mark_reductions();
}

void WorkOrder::mark_reductions() {
  if (steps_.empty()) return;
  const Item& item = steps_.back().item;
  const ReductionPlaces& places = places_[static_cast<std::size_t>(item.block)];
  const auto behind = [&](auto step, Seconds seconds) {
    if (++step != steps_.end()) step->hides_reductions = seconds;
  };
  const auto combine = std::find_if(steps_.begin(), steps_.end(), [](auto& s) { return is_backward(s, Op::combine); });
  const auto dispatch =
      std::find_if(steps_.rbegin(), steps_.rend(), [](auto& s) { return is_backward(s, Op::dispatch); });
  if (combine == steps_.end()) {
    steps_.front().hides_reductions = places.first;
  } else {
    behind(combine, places.first);
    if (dispatch != steps_.rend()) behind(dispatch.base() - 1, places.second);
  }
  const int chunk = plan_.blocks()[static_cast<std::size_t>(item.block)].chunk;
  steps_.back().gradients_final = last_backward_[static_cast<std::size_t>(chunk)] == item.micro_batch;
}

void WorkOrder::add_window(std::size_t forwards_done, std::size_t backwards_done) {
  const Item item = plan_.current(), other = plan_.beside_current();
  const auto& forward = windows_.parts(plan_.program(item.micro_batch, item.block).forward, item.block);
  const auto& backward = windows_.parts(plan_.program(other.micro_batch, other.block).backward, other.block);
  const auto& order =
      windows_.issue_order({forward, forwards_done, item.block, plan_.group_rows(item.micro_batch, item.block)},
                           {backward, backwards_done, other.block, plan_.group_rows(other.micro_batch, other.block)});
  for (const bool goes_back : order)
    steps_.push_back(goes_back ? step_of(other, backward, backwards_done++) : step_of(item, forward, forwards_done++));
}

void WorkOrder::replace_rest() {
  const Item item = plan_.current();
  std::size_t forwards = 0, backwards = 0;
  steps_.resize(at_ + 1);
  for (const WorkStep& s : steps_) ++(s.item.kind == Kind::forward ? forwards : backwards);
  if (item.beside_next) return add_window(forwards, backwards);
  const auto& list = plan_.program(item.micro_batch, item.block).forward;
  for (std::size_t n = forwards; n < list.size(); ++n) steps_.push_back(step_of(item, list, n));
}

void WorkOrder::gate(const StepPlan::Gate& gate) {
  const Item item = current().item;
  plan_.decide_after_gate(item.micro_batch, item.block, gate);
  replace_rest();
}

void WorkOrder::gate_at(ExpertRows rows) {
  const Item item = current().item;
  plan_.decide_after_gate_at(item.micro_batch, item.block, rows);
  replace_rest();
}

}  // namespace spillway
