#include "plan/policy/conflicts.hpp"

#include <algorithm>
#include <array>

namespace spillway {

std::string_view name(Conflict conflict) {
  static constexpr std::array<std::string_view, 3> names = {"none", "multi-precision", "multi-device"};
  return names[static_cast<std::size_t>(conflict)];
}

Assignment::Assignment(BlockKind kind, const BlockContext& context) {
  const auto table = operator_table(kind, context);
  TensorSet made{Tensor::block_input};
  for (const OperatorRow& row : table)
    for (const Tensor t : row.forward.writes) made.insert(t);
  for (const OperatorRow& row : table)
    for (const Tensor t : row.backward.reads)
      if (made.contains(t)) uses_.push_back({row.op, t, Treatment::keep});
}

std::vector<Op> Assignment::consumers(Tensor t) const {
  std::vector<Op> list;
  for (const OperatorMitigation& use : uses_)
    if (use.tensor == t) list.push_back(use.consumer);
  return list;
}

std::vector<Tensor> Assignment::tensors() const {
  std::vector<Tensor> list;
  for (const OperatorMitigation& use : uses_)
    if (std::find(list.begin(), list.end(), use.tensor) == list.end()) list.push_back(use.tensor);
  return list;
}

Conflict Assignment::conflict(const std::vector<OperatorMitigation>& candidate) const {
  Assignment then = *this;
  then.apply(candidate);
  for (const OperatorMitigation& c : candidate)
    for (const OperatorMitigation& use : then.uses_) {
      if (use.tensor != c.tensor || use.treatment == c.treatment) continue;
      const bool precision = use.treatment == Treatment::quantize || c.treatment == Treatment::quantize;
      const bool both_on_device = (use.treatment == Treatment::keep || use.treatment == Treatment::quantize) &&
                                  (c.treatment == Treatment::keep || c.treatment == Treatment::quantize);
      return precision && both_on_device ? Conflict::precision : Conflict::place;
    }
  return Conflict::none;
}

void Assignment::apply(const std::vector<OperatorMitigation>& candidate) {
  for (const OperatorMitigation& c : candidate)
    for (OperatorMitigation& use : uses_)
      if (use.consumer == c.consumer && use.tensor == c.tensor) use.treatment = c.treatment;
}

}  // namespace spillway
