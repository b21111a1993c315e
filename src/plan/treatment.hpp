#pragma once
// What becomes of every tensor that a block could save for its backward pass, read from a compiled program.
#include <string>
#include <vector>

#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

struct TensorTreatment {
  Tensor tensor;
  Bytes bytes;  ///< of one micro-batch, as the block makes it
  Treatment treatment;
};

/// The tensors that the block's backward pass reads, in forward order, and how `program` provides each. `rows`: of its
/// experts.
std::vector<TensorTreatment> tensor_treatments(const StageBlock& block, const BlockProgram& program, ExpertRows rows);

/// One line per treatment in use: "recompute   96.0 MiB  attention_norm_output 32.0 MiB, ...".
std::vector<std::string> treatment_lines(const std::vector<TensorTreatment>& tensors);

}  // namespace spillway
