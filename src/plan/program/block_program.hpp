#pragma once
// What a rank does for one block and one micro-batch, instruction by instruction: which operator runs, which tensors come
// to life before it and which die after it. Made from the operator table and the set of tensors a policy keeps; the
// executor carries it out, the books add it up.
#include <string>
#include <vector>

#include "workload/shape/operator_table.hpp"

namespace spillway {

struct Instruction {
  Op op;
  PassKind pass = PassKind::forward;
  bool recompute = false;        ///< the forward pass repeated inside backward
  std::vector<Tensor> allocate;  ///< before it runs; a tensor it writes that is not listed here already lives
  std::vector<Tensor> release;   ///< after it has run

  bool allocates(Tensor tensor) const;
};

/// Tensors carried from block to block: block_input comes in and block_output goes out in forward, d_residual does both
/// in backward. A program neither allocates what comes in nor releases what goes out.
struct BlockProgram {
  std::vector<Instruction> forward, backward;
  TensorSet kept;        ///< alive between the two
  std::size_t gate = 0;  ///< index in `forward` of the gate exchange; forward.size() where there is none
};

/// Compiles a block. `keep` names the tensors that may stay for backward; those that backward does not need are dropped
/// anyway, those it needs and finds missing are computed again from what is there, just before their first use.
/// block_input is always kept.
BlockProgram compile(BlockKind kind, const BlockContext& context, TensorSet keep);

/// One line per instruction, for tests and people.
std::string to_text(const std::vector<Instruction>& instructions);

}  // namespace spillway
