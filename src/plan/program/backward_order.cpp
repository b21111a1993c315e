#include "plan/program/backward_order.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace spillway {
namespace {

bool contains(const std::vector<Tensor>& list, Tensor t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

}  // namespace

BackwardOrder::BackwardOrder(const Table& table, TensorSet available, int slices)
    : table_(table), available_(available), slices_(slices) {
  for (const OperatorRow& row : table) {
    for (const Tensor t : row.forward.writes) forward_tensors_.insert(t);
    together_ |= row.op == Op::qkv && row.collective == Collective::tensor_parallel;
  }
  forward_tensors_.insert(Tensor::block_input);
  if (together_ && !available_.contains(Tensor::mlp_norm_input)) {
    provide(Tensor::qkv);
    provide(Tensor::mlp_norm_input);
  }
  for (auto row = table.rbegin(); row != table.rend();) {
    if (slices_ == 0 || !runs_in_slices(row->op)) {
      backward_of(*row++);
      continue;
    }
    const auto end = std::find_if(row, table.rend(), [](const OperatorRow& r) { return !runs_in_slices(r.op); });
    for (int slice = 0; slice < slices_; ++slice) {
      begin_slice(slice);
      for (auto r = row; r != end; ++r) backward_of(*r);
    }
    begin_slice(-1);
    row = end;
  }
}

void BackwardOrder::backward_of(const OperatorRow& row) {
  if (row.backward.reads.empty() && row.backward.writes.empty()) return;
  if (together_) provide_together(row.op);
  for (const Tensor t : row.backward.reads) provide(t);
  push(row, PassKind::backward, false);
}

/// A member that has dropped what lies between would come to these messages before its group's next ones, the others
/// after them.
void BackwardOrder::provide_together(Op before) {
  if (before == Op::mlp_fc2) provide(Tensor::mlp_fc1_output);
  if (before == Op::out_projection) provide(Tensor::qkv);
}

void BackwardOrder::push(const OperatorRow& row, PassKind direction, bool recompute) {
  const bool in_slice = slice_ >= 0 && runs_in_slices(row.op);
  steps_.push_back({&row, direction, recompute, in_slice ? slice_ : -1, in_slice ? life_ : -1});
}

void BackwardOrder::begin_slice(int slice) {
  slice_ = slice;
  if (slice >= 0) ++life_;
  for (std::size_t t = 0; t < tensor_count; ++t)
    if (lives_in_slices(static_cast<Tensor>(t))) available_.erase(static_cast<Tensor>(t));
}

const OperatorRow& BackwardOrder::producer(Tensor t) const {
  const auto row =
      std::find_if(table_.begin(), table_.end(), [t](const OperatorRow& r) { return contains(r.forward.writes, t); });
  ensure(row != table_.end(), "no operator makes {}", name(t));
  return *row;
}

void BackwardOrder::provide(Tensor t) {
  if (!forward_tensors_.contains(t)) return;  // a gradient: made by the backward pass itself
  if (available_.contains(t)) {
    if (!remade_.contains(t)) used_.insert(t);
    return;
  }
  if (slices_ > 0 && t == Tensor::returned_rows) return provide_returned_rows();
  // The group's exchanges come in one order on all members, whatever each keeps of the tensors between them.
  if (t == Tensor::returned_rows) provide(Tensor::fc1_input);
  const OperatorRow& row = producer(t);
  for (const Tensor input : row.forward.reads) provide(input);
  push(row, PassKind::forward, true);
  for (const Tensor made : row.forward.writes) {
    if (!available_.contains(made)) remade_.insert(made);
    available_.insert(made);
  }
}

void BackwardOrder::provide_returned_rows() {
  const OperatorRow& combine = producer(Tensor::returned_rows);
  for (int slice = 0; slice < slices_; ++slice) {
    begin_slice(slice);
    provide(Tensor::expert_output);
    push(combine, PassKind::forward, true);
  }
  begin_slice(-1);
  remade_.insert(Tensor::returned_rows);
  available_.insert(Tensor::returned_rows);
}

}  // namespace spillway
