#include "plan/fused_window.hpp"

namespace spillway {
namespace {

bool exchanges(const Instruction& i) {
  return i.action == Action::run && (i.op == Op::dispatch || i.op == Op::combine);
}

/// Parts up to the next message, itself included.
std::size_t stretch(std::span<const IssuedPart> list) {
  std::size_t n = 0;
  while (n < list.size() && list[n++].part != Part::begin) {
  }
  return n;
}

}  // namespace

std::vector<IssuedPart> parts_of(const std::vector<Instruction>& instructions, const BlockContext& context) {
  std::vector<IssuedPart> parts;
  for (const Instruction& i : instructions) {
    const bool two = exchanges(i) && context.expert_parallel > 1;
    if (two) parts.push_back({&i, Part::begin});
    parts.push_back({&i, two ? Part::end : Part::whole});
  }
  return parts;
}

std::vector<bool> issue_order(const WindowHalf& forward, const WindowHalf& backward, const MachineProfile&) {
  std::vector<bool> order;
  std::span<const IssuedPart> f = forward.parts, b = backward.parts;
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
