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
    receive_input,     ///< block_input of a chunk's first block from the previous piece of the model
    forward,           ///< a block's forward instructions
    send_output,       ///< block_output of a chunk's last block
    reload,            ///< a block's reloads: issued one block ahead of its backward pass, to hide the copies
    receive_gradient,  ///< d_residual of a chunk's last block from the next piece
    backward,          ///< a block's backward instructions
    send_gradient,     ///< d_residual of a chunk's first block
    barrier            ///< the rank's lanes wait for each other
  } kind;
  int micro_batch = 0;
  int block = 0;
  bool beside_next =
      false;  ///< of a forward: its instructions and those of the next item, a backward, are issued in turns
  bool operator==(const Item&) const = default;
};

/// Whether a chunk exchanges activations with its neighbours in the model: what its first and last blocks are decides.
bool receives_input(std::span<const StageBlock> blocks, int chunk);
bool sends_output(std::span<const StageBlock> blocks, int chunk);

/// Items of task order[index], or of the fused unit that begins there; none for its second half. A unit pairs the blocks
/// of the forward pass with those of the backward pass one by one. The last block of a (micro-batch, chunk) is reloaded beside what comes before its backward
/// pass: another's forward, or the end of another's backward.
std::vector<Item> task_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks);

/// Where a stage stands in its pipeline.
struct PipelinePlace {
  int stage = 0, stages = 1, micro_batches = 1;
};
/// The other end of an item that is a message: its stage, and a tag that no other message of the same direction between
/// the two has in an iteration, even where both neighbours are one.
struct MessageEnd {
  int stage = 0, tag = 0;
};
MessageEnd message_end(const Item& item, int chunk, const PipelinePlace& here);

}  // namespace spillway
