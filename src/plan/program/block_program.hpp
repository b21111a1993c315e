#pragma once
// What a rank does for one block and one micro-batch, instruction by instruction: which operator runs, which tensors come
// to life before it and which die after it, which leave for the host tier and come back. Made from the operator table and
// the mitigations a policy chose; the executor carries it out, the books add it up.
#include <string>
#include <vector>

#include "plan/program/mitigations.hpp"
#include "workload/shape/operator_table.hpp"

namespace spillway {

enum class Action : unsigned char {
  run,        ///< an operator's pass
  drop,       ///< only releases: a decision after the gate gives up what one before it kept
  offload,    ///< copy `subject` to the host tier; its device memory is released at once
  reload,     ///< copy `subject` back; its host memory is released
  quantize,   ///< replace `subject` by its FP8 form
  dequantize  ///< the reverse
};

struct Instruction {
  Op op{};
  PassKind pass = PassKind::forward;
  bool recompute = false;        ///< the forward pass repeated inside backward
  std::vector<Tensor> allocate;  ///< before it runs; a tensor it writes that is not listed here already lives
  std::vector<Tensor> release;   ///< after it has run
  Action action = Action::run;
  Tensor subject{};  ///< of a copy or a cast
  int slice = -1;    ///< of the dispatch; -1: the whole

  bool allocates(Tensor tensor) const;
};
/// The operator, or the action where no operator runs.
std::string_view name(const Instruction& instruction);
std::string_view name(Action action);

/// What a policy decided for a block: before the gate, with the load unknown, and again after it. What was released,
/// offloaded or quantized before the gate stays so; the rest may be decided anew.
struct BlockDecision {
  Mitigations before, after;
  int slices = 0;  ///< of the dispatch, where `after` slices it: from the gate table, the same on the whole group

  explicit BlockDecision(const Mitigations& both) : before(both), after(both) {}
  BlockDecision(const Mitigations& first, const Mitigations& second, int slice_count)
      : before(first), after(second), slices(slice_count) {}
};

/// Tensors carried from block to block: block_input comes in and block_output goes out in forward, d_residual does both
/// in backward. A program neither allocates what comes in nor releases what goes out.
struct BlockProgram {
  std::vector<Instruction> forward;
  std::vector<Instruction> reloads;  ///< any time before backward, ahead of it to hide the copies
  std::vector<Instruction> backward;
  TensorSet kept;                  ///< on the device between forward and backward
  TensorSet offloaded, quantized;  ///< in their other form between the two
  std::size_t gate = 0;            ///< index in `forward` of the gate exchange; forward.size() where there is none
};

/// Compiles the decisions about a block, or about blocks of the same kind in the same context. Of the tensors that the decision saves, those that backward does not need are dropped anyway; those
/// it needs and finds missing are computed again from what is there, just before their first use. block_input is always
/// saved. Throws InternalError for slices without a count.
class BlockCompiler {
 public:
  BlockCompiler(BlockKind kind, const BlockContext& context);
  BlockProgram compile(const BlockDecision& decision) const;

 private:
  BlockKind kind_;
  std::vector<OperatorRow> whole_, in_slices_;
  TensorSet settled_;  ///< at the gate
};

inline BlockProgram compile(BlockKind kind, const BlockContext& context, const BlockDecision& decision) {
  return BlockCompiler(kind, context).compile(decision);
}
inline BlockProgram compile(BlockKind kind, const BlockContext& context, const Mitigations& both) {
  return compile(kind, context, BlockDecision(both));
}

/// Tensors whose last use in forward comes before the gate (none in blocks without one): a decision before the gate that
/// does not keep them cannot be taken back.
TensorSet settled_at_gate(BlockKind kind, const BlockContext& context);

/// One line per instruction, for tests and people.
std::string to_text(const std::vector<Instruction>& instructions);

}  // namespace spillway
