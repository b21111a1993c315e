#pragma once
// The pair (dt, dm) of every operator (BaGuaLu-2, arXiv 2610.23064): its seconds on a machine and the bytes it leaves
// in memory for backward, and what it costs to do without a saved tensor until backward needs it.
#include <optional>
#include <string_view>
#include <vector>

#include "plan/cost/machine_profile.hpp"
#include "workload/shape/operator_table.hpp"

namespace spillway {

/// One block and one micro-batch on one rank of a machine. Messages are predicted as if every member of the expert
/// group received what this rank does.
struct CostSituation {
  MachineProfile machine;
  BlockKind kind = BlockKind::moe;
  BlockContext context;
  ExpertRows rows;
  std::vector<int> nodes;  ///< of the expert group's members [expert_parallel]; empty: ranks in order fill the nodes
};

/// One direction of an operator. Keep everything: nothing is recomputed.
struct OperatorCost {
  Seconds compute;  ///< compute lane: packing before and unpacking after a message included
  Seconds network;  ///< network lane: messages of the expert or the tensor-parallel group
  Bytes saved;      ///< dm: added by forward (> 0), released by backward (< 0)

  Seconds total() const { return compute + network; }
  OperatorCost& operator+=(const OperatorCost& o);
};
OperatorCost operator_cost(const CostSituation& situation, Op op, PassKind pass);
/// Sum over the operators of the block.
OperatorCost block_cost(const CostSituation& situation, PassKind pass);

/// Tensors that live from forward to backward under "keep everything", in the order in which forward makes them. The
/// block's input comes first: its first reader answers for it.
std::vector<Tensor> saved_tensors(BlockKind kind, const BlockContext& context);
/// Their bytes, row weights included (which saved_activation_bytes, a sum of activations, leaves out).
Bytes saved_bytes(BlockKind kind, const BlockContext& context, ExpertRows rows);

/// What can be done with a saved tensor instead of keeping it.
enum class MitigationStrategy : unsigned char {
  recompute,  ///< drop it; run the operators that make it again before backward reads it
  offload,    ///< copy it to the host after forward and back before backward
  quantize    ///< store it as FP8 with a scale per 128 values (lossy)
};
inline constexpr MitigationStrategy all_strategies[] = {MitigationStrategy::recompute, MitigationStrategy::offload,
                                                        MitigationStrategy::quantize};
std::string_view name(MitigationStrategy strategy);

/// Bytes freed between forward and backward, and the seconds that this adds to each lane.
struct MitigationCost {
  Bytes freed;
  Seconds compute, network, copy_out, copy_in;
  /// Overhead where nothing is hidden.
  Seconds total() const { return compute + network + copy_out + copy_in; }
};

/// Cost of one strategy for one saved tensor while all others are kept. Empty where nothing of this rank can make the
/// tensor again (the block's input). Host memory that is device memory (shared_memory) frees no bytes by offloading.
/// Throws InternalError for a tensor that is not saved.
std::optional<MitigationCost> mitigation_cost(const CostSituation& situation, Tensor tensor,
                                              MitigationStrategy strategy);

/// Operators whose forward pass is run again when `dropped` are not kept, each once, in the order of their repetition;
/// what they read and forward does not leave behind is made again too.
std::vector<Op> repeated_operators(BlockKind kind, const BlockContext& context, TensorSet dropped);
/// Cost of dropping all of `dropped`: a set can cost less than its members one by one (they may share an operator).
MitigationCost recompute_cost(const CostSituation& situation, TensorSet dropped);

}  // namespace spillway
