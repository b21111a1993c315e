#pragma once
// Recomputation that needs the tensor-parallel group. Its members must repeat it together, and what they know of each other
// does not suffice to decide it block by block: budgets differ with past loads, and the decision comes before the gate or
// in blocks without one. So it is settled when the plan of a stage is made, from what is the same on all ranks of the
// stage: as many blocks hold these tensors as fit when everything else is given up at the worst load; the others always
// compute them again. Static policies decide alike on all ranks of a stage and need no such rule.
#include "plan/program/mitigations.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// Saved tensors that only a tensor-parallel collective can bring back: none where no such group is. The head's logits count;
/// policies that adapt always keep them.
TensorSet tensor_parallel_tensors(const StageBlock& block);

/// Every transformer layer holds its tensors.
void hold_all(std::span<StageBlock> blocks);
/// The next block, in forward order, gives its tensors up; false where none holds any.
bool give_up_next(std::span<StageBlock> blocks);

/// Keeps everything but what a layer that does not hold its tensors computes again with its group.
Mitigations keep_all(const StageBlock& block);

}  // namespace spillway
