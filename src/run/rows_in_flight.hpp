#pragma once
// Rows of experts whose forward pass is done and whose backward pass is not: what a rank has to hold at once.
#include <algorithm>

#include "plan/work_order.hpp"

namespace spillway {

class RowsInFlight {
 public:
  /// The block's pass is done, forward or backward.
  void pass_done(const StepPlan& plan, const Item& item) {
    const StageBlock& block = plan.blocks()[static_cast<std::size_t>(item.block)];
    if (block.kind != BlockKind::moe) return;
    const int sign = item.kind == Item::Kind::forward ? 1 : -1;
    rows_ += sign * plan.rows(item.micro_batch, item.block).whole.rows;
    balanced_ += sign * block.context.routed_rows();
    most_ = std::max(most_, rows_);
    most_balanced_ = std::max(most_balanced_, balanced_);
  }
  /// The peak over the same at balanced load; 1 where the rank has no experts.
  double peak_over_balance() const {
    return most_balanced_ > 0 ? static_cast<double>(most_) / static_cast<double>(most_balanced_) : 1;
  }

 private:
  std::int64_t rows_ = 0, most_ = 0, balanced_ = 0, most_balanced_ = 0;
};

}  // namespace spillway
