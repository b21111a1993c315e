#pragma once
// The order of a block's backward pass: every operator's backward from last to first, each preceded by the forward passes
// that bring back what it misses.
#include <vector>

#include "workload/shape/operator_table.hpp"

namespace spillway {

using Table = std::vector<OperatorRow>;

/// A step of a pass before its memory is planned.
struct Step {
  const OperatorRow* row;
  PassKind direction;
  bool recompute;  ///< a forward pass repeated inside backward
  int slice = -1;  ///< of a dispatch in slices; -1: the whole
  int life = -1;   ///< tensors on the experts' side live through steps of one number: a slice may be computed twice
  const Pass& pass() const { return direction == PassKind::forward ? row->forward : row->backward; }
};

class BackwardOrder {
 public:
  /// `available` tensors are there when backward begins. `slices` > 0: the dispatch is done in so many, each computed
  /// again and carried backward before the next; `table` must be the sliced one and outlive this.
  BackwardOrder(const Table& table, TensorSet available, int slices);

  const std::vector<Step>& steps() const { return steps_; }
  /// Available tensors that some step reads.
  TensorSet used() const { return used_; }

 private:
  void backward_of(const OperatorRow& row);
  /// Repeats what a tensor-parallel group computes together before its members' own choices can tell them apart.
  void provide_together(Op before);
  void provide(Tensor t);
  /// Makes the rows that all slices return, before any goes backward (probabilities applied after combine).
  void provide_returned_rows();
  void begin_slice(int slice);
  void push(const OperatorRow& row, PassKind direction, bool recompute);
  const OperatorRow& producer(Tensor t) const;

  const Table& table_;
  TensorSet available_, remade_, used_, forward_tensors_;
  int slices_, slice_ = -1, life_ = -1;
  bool together_ = false;  ///< attention is computed by a tensor-parallel group
  std::vector<Step> steps_;
};

}  // namespace spillway
