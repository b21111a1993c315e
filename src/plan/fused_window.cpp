#include "plan/fused_window.hpp"

namespace spillway {
namespace {

bool exchanges(const Instruction& i) {
  return i.action == Action::run && (i.op == Op::dispatch || i.op == Op::combine || i.op == Op::gate);
}

/// Instructions up to the next exchange, itself included.
std::size_t stretch(std::span<const Instruction> list) {
  std::size_t n = 0;
  while (n < list.size() && !exchanges(list[n++])) {
  }
  return n;
}

}  // namespace

std::vector<bool> issue_order(const WindowHalf& forward, const WindowHalf& backward, const MachineProfile&) {
  std::vector<bool> order;
  std::span<const Instruction> f = forward.instructions, b = backward.instructions;
  while (!f.empty() || !b.empty()) {
    const std::size_t backwards = stretch(b), forwards = stretch(f);
    order.insert(order.end(), backwards, true);
    order.insert(order.end(), forwards, false);
    b = b.subspan(backwards);
    f = f.subspan(forwards);
  }
  return order;
}

}  // namespace spillway
