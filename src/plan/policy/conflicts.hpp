#pragma once
// Mitigations operator by operator, as the published planner thinks of them, and where they contradict each other: one
// tensor may be saved by several consumers, and what one of them gives up is only gone if all do.
#include <string_view>
#include <vector>

#include "plan/program/mitigations.hpp"
#include "workload/shape/operator_table.hpp"

namespace spillway {

/// An operator's backward pass treats a tensor it reads.
struct OperatorMitigation {
  Op consumer;
  Tensor tensor;
  Treatment treatment;
  bool operator==(const OperatorMitigation&) const = default;
};

enum class Conflict : unsigned char {
  none,
  precision,  ///< multi-precision: some consumers want the tensor as FP8, others as it is: two copies
  place  ///< multi-device: some consumers find it on the device, others in the host tier or nowhere: nothing is freed
};
std::string_view name(Conflict conflict);

/// Which operator treats which saved tensor how; at first every one keeps it.
class Assignment {
 public:
  Assignment(BlockKind kind, const BlockContext& context);

  /// Operators whose backward pass reads the tensor, in forward order.
  std::vector<Op> consumers(Tensor t) const;
  /// Tensors made in forward and read in backward, in forward order.
  std::vector<Tensor> tensors() const;

  /// What would contradict what if these were applied: traced through the table to every other consumer of the tensor.
  Conflict conflict(const std::vector<OperatorMitigation>& candidate) const;
  void apply(const std::vector<OperatorMitigation>& candidate);

 private:
  std::vector<OperatorMitigation> uses_;
};

}  // namespace spillway
