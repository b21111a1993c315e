#include "plan/program/lifetimes.hpp"

#include <algorithm>

namespace spillway {
namespace {

template <class Visit>
void for_each_touched(const Pass& pass, const Visit& visit) {
  for (const auto* list : {&pass.reads, &pass.writes})
    for (const Tensor t : *list) visit(t);
}

int life_of(Tensor t, const Step& step) { return lives_in_slices(t) ? step.life : -1; }

}  // namespace

Instruction movement(Action action, Tensor subject) {
  Instruction i;
  i.action = action;
  i.subject = subject;
  const bool comes_back = action == Action::reload || action == Action::dequantize;
  (comes_back ? i.allocate : i.release).push_back(subject);
  return i;
}

Lifetimes::Lifetimes(const std::vector<Step>& steps, TensorSet live, TensorSet quantized)
    : steps_(steps), live_(live), quantized_(quantized) {
  list_.reserve(steps.size() + steps.size() / 2);
  for (const Step& s : steps) lives_ = std::max(lives_, s.life + 1);
  last_.assign(tensor_count * static_cast<std::size_t>(lives_ + 1), 0);
  for (std::size_t i = 0; i < steps.size(); ++i)
    for_each_touched(steps[i].pass(), [&](Tensor t) { last_use(t, life_of(t, steps[i])) = i + 1; });
}

/// One past the last step that touches a tensor; 0 where none does.
std::size_t& Lifetimes::last_use(Tensor t, int life) {
  return last_[static_cast<std::size_t>(t) * static_cast<std::size_t>(lives_ + 1) + static_cast<std::size_t>(life + 1)];
}

void Lifetimes::finish(Tensor t, const Fate& fate, Instruction& at, std::vector<Instruction>& after) {
  if (fate.stay.contains(t)) return;
  live_.erase(t);
  if (fate.offload.contains(t))
    after.push_back(movement(Action::offload, t));
  else if (fate.quantize.contains(t))
    after.push_back(movement(Action::quantize, t));
  else
    at.release.push_back(t);
}

void Lifetimes::plan(std::size_t end, const Fate& fate) {
  for (; next_ < end; ++next_) {
    const Step& step = steps_[next_];
    const Pass& pass = step.pass();
    for_each_touched(pass, [&](Tensor t) {
      if (!quantized_.contains(t) || live_.contains(t)) return;
      list_.push_back(movement(Action::dequantize, t));
      live_.insert(t);
      quantized_.erase(t);
    });
    Instruction instruction{step.row->op, step.direction, step.recompute, {}, {}};
    instruction.slice = step.slice;
    instruction.allocate.reserve(pass.writes.size() + pass.scratch.size());
    instruction.release.reserve(pass.scratch.size() + pass.reads.size() + pass.writes.size());
    instruction.release = pass.scratch;
    for (const Tensor t : pass.writes)
      if (!live_.contains(t)) {
        live_.insert(t);
        instruction.allocate.push_back(t);
      }
    instruction.allocate.insert(instruction.allocate.end(), pass.scratch.begin(), pass.scratch.end());
    std::vector<Instruction> after;
    for_each_touched(pass, [&](Tensor t) {
      if (live_.contains(t) && last_use(t, life_of(t, step)) == next_ + 1) finish(t, fate, instruction, after);
    });
    list_.push_back(std::move(instruction));
    list_.insert(list_.end(), after.begin(), after.end());
  }
}

void Lifetimes::settle(std::size_t from, const Fate& fate) {
  Instruction drop;
  drop.action = Action::drop;
  std::vector<Instruction> after;
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto t = static_cast<Tensor>(i);
    if (live_.contains(t) && last_use(t, -1) <= from) finish(t, fate, drop, after);
  }
  if (!drop.release.empty()) list_.push_back(std::move(drop));
  list_.insert(list_.end(), after.begin(), after.end());
}

}  // namespace spillway
