#pragma once
// What a stage does for one task of its schedule, in order: messages, blocks, and the reloads of tensors that wait in the
// host tier. Executor, books and projection follow the same script.
#include <span>
#include <vector>

#include "plan/program/stage.hpp"
#include "plan/schedule/schedule.hpp"

namespace spillway {

struct Item {
  enum class Kind : unsigned char {
    receive_input,     ///< block_input of block 0 from the previous stage
    forward,           ///< a block's forward instructions
    send_output,       ///< block_output of the last block
    reload,            ///< a block's reloads: issued one block ahead of its backward pass, to hide the copies
    receive_gradient,  ///< d_residual from the next stage
    backward,          ///< a block's backward instructions
    send_gradient
  } kind;
  int micro_batch = 0;
  int block = 0;
  bool operator==(const Item&) const = default;
};

/// Whether a stage exchanges activations with its neighbours: what its first and last blocks are decides.
bool receives_input(std::span<const StageBlock> blocks);
bool sends_output(std::span<const StageBlock> blocks);

/// Items of task order[index]. The last block of a micro-batch is reloaded beside what comes before its backward pass:
/// a forward of another micro-batch, or the end of another's backward.
std::vector<Item> task_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks);

}  // namespace spillway
