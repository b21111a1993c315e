#include "plan/program/task_script.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

bool is_layer(const StageBlock& block) { return block.kind == BlockKind::moe || block.kind == BlockKind::dense; }
bool is_backward(const Task& task) { return task.kind == Task::Kind::backward; }

/// True when task `index`, a backward, finds its last block's reloads already issued by the task before.
bool reloaded_ahead(std::span<const Task> order, std::size_t index) {
  if (index == 0) return false;
  const Task& before = order[index - 1];
  return is_backward(before) || before.micro_batch != order[index].micro_batch || before.chunk != order[index].chunk;
}

}  // namespace

bool receives_input(std::span<const StageBlock> blocks, int chunk) {
  return is_layer(blocks[blocks_of_chunk(blocks, chunk).first]);
}
bool sends_output(std::span<const StageBlock> blocks, int chunk) {
  return is_layer(blocks[blocks_of_chunk(blocks, chunk).last]);
}

std::vector<Item> task_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks) {
  const int mb = order[index].micro_batch, chunk = order[index].chunk;
  const auto [first, last] = blocks_of_chunk(blocks, chunk);
  const bool reloads_next =
      index + 1 < order.size() && is_backward(order[index + 1]) && reloaded_ahead(order, index + 1);
  const Task& next = order[reloads_next ? index + 1 : index];
  const Item next_reload{Kind::reload, next.micro_batch, blocks_of_chunk(blocks, next.chunk).last};
  std::vector<Item> items;
  if (!is_backward(order[index])) {
    if (reloads_next) items.push_back(next_reload);
    if (receives_input(blocks, chunk)) items.push_back({Kind::receive_input, mb, first});
    for (int b = first; b <= last; ++b) items.push_back({Kind::forward, mb, b});
    if (sends_output(blocks, chunk)) items.push_back({Kind::send_output, mb, last});
    return items;
  }
  if (!reloaded_ahead(order, index)) items.push_back({Kind::reload, mb, last});
  if (sends_output(blocks, chunk)) items.push_back({Kind::receive_gradient, mb, last});
  for (int b = last; b >= first; --b) {
    if (b > first) items.push_back({Kind::reload, mb, b - 1});
    if (b == first && reloads_next) items.push_back(next_reload);
    items.push_back({Kind::backward, mb, b});
  }
  if (receives_input(blocks, chunk)) items.push_back({Kind::send_gradient, mb, first});
  return items;
}

MessageEnd message_end(const Item& item, int chunk, const PipelinePlace& here) {
  const int piece = chunk * here.stages + here.stage;
  const bool to_next = item.kind == Kind::send_output || item.kind == Kind::receive_gradient;
  const int other = to_next ? piece + 1 : piece - 1;
  const bool sends = item.kind == Kind::send_output || item.kind == Kind::send_gradient;
  const int receiving_chunk = (sends ? other : piece) / here.stages;
  return {other % here.stages, receiving_chunk * here.micro_batches + item.micro_batch};
}

}  // namespace spillway
