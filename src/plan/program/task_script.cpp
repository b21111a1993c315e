#include "plan/program/task_script.hpp"

#include <algorithm>
#include <optional>

namespace spillway {
namespace {

using Kind = Item::Kind;

bool is_layer(const StageBlock& block) { return block.kind == BlockKind::moe || block.kind == BlockKind::dense; }
bool is_backward(const Task& task) { return task.kind == Task::Kind::backward; }

/// Whether order[index] is the second half of a fused unit.
bool is_second_half(std::span<const Task> order, std::size_t index) {
  return index > 0 && order[index - 1].beside_next;
}

/// True when task `index`, a backward, finds its last block's reloads already issued by the unit before: unless that unit
/// is, or holds, its own forward pass.
bool reloaded_ahead(std::span<const Task> order, std::size_t index) {
  const std::size_t unit = is_second_half(order, index) ? index - 1 : index;
  if (unit == 0) return false;
  const Task& before = order[is_second_half(order, unit - 1) ? unit - 2 : unit - 1];
  return is_backward(before) || before.micro_batch != order[index].micro_batch || before.chunk != order[index].chunk;
}

/// The last block of the backward pass that follows a unit and finds its reloads issued by it.
std::optional<Item> reload_of_next(std::span<const Task> order, std::size_t next, std::span<const StageBlock> blocks) {
  if (next < order.size() && order[next].beside_next) ++next;
  if (next >= order.size() || !is_backward(order[next]) || !reloaded_ahead(order, next)) return std::nullopt;
  return Item{Kind::reload, order[next].micro_batch, blocks_of_chunk(blocks, order[next].chunk).last};
}

/// A fused unit: both messages first, then block beside block; a result leaves as soon as it is there.
std::vector<Item> unit_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks) {
  const Task &f = order[index], &b = order[index + 1];
  const ChunkBlocks up = blocks_of_chunk(blocks, f.chunk), down = blocks_of_chunk(blocks, b.chunk);
  const int forwards = up.last - up.first + 1, backwards = down.last - down.first + 1;
  const auto next_reload = reload_of_next(order, index + 2, blocks);
  std::vector<Item> items;
  if (!reloaded_ahead(order, index + 1)) items.push_back({Kind::reload, b.micro_batch, down.last});
  if (receives_input(blocks, f.chunk)) items.push_back({Kind::receive_input, f.micro_batch, up.first});
  if (sends_output(blocks, b.chunk)) items.push_back({Kind::receive_gradient, b.micro_batch, down.last});
  for (int i = 0; i < std::max(forwards, backwards); ++i) {
    const bool goes_up = i < forwards, goes_down = i < backwards;
    if (i + 1 < backwards) items.push_back({Kind::reload, b.micro_batch, down.last - i - 1});
    if (next_reload && i + 1 == std::max(forwards, backwards)) items.push_back(*next_reload);
    if (goes_up) items.push_back({Kind::forward, f.micro_batch, up.first + i, goes_down});
    if (goes_down) items.push_back({Kind::backward, b.micro_batch, down.last - i});
    if (i + 1 == forwards && sends_output(blocks, f.chunk))
      items.push_back({Kind::send_output, f.micro_batch, up.last});
    if (i + 1 == backwards && receives_input(blocks, b.chunk))
      items.push_back({Kind::send_gradient, b.micro_batch, down.first});
  }
  if (b.barrier_after) items.push_back({Kind::barrier, b.micro_batch, down.first});
  return items;
}

}  // namespace

bool receives_input(std::span<const StageBlock> blocks, int chunk) {
  return is_layer(blocks[blocks_of_chunk(blocks, chunk).first]);
}
bool sends_output(std::span<const StageBlock> blocks, int chunk) {
  return is_layer(blocks[blocks_of_chunk(blocks, chunk).last]);
}

std::vector<Item> task_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks) {
  if (is_second_half(order, index)) return {};
  if (order[index].beside_next) return unit_script(order, index, blocks);
  const int mb = order[index].micro_batch, chunk = order[index].chunk;
  const auto [first, last] = blocks_of_chunk(blocks, chunk);
  const auto next_reload = reload_of_next(order, index + 1, blocks);
  std::vector<Item> items;
  if (!is_backward(order[index])) {
    if (next_reload) items.push_back(*next_reload);
    if (receives_input(blocks, chunk)) items.push_back({Kind::receive_input, mb, first});
    for (int b = first; b <= last; ++b) items.push_back({Kind::forward, mb, b});
    if (sends_output(blocks, chunk)) items.push_back({Kind::send_output, mb, last});
    return items;
  }
  if (!reloaded_ahead(order, index)) items.push_back({Kind::reload, mb, last});
  if (sends_output(blocks, chunk)) items.push_back({Kind::receive_gradient, mb, last});
  for (int b = last; b >= first; --b) {
    if (b > first) items.push_back({Kind::reload, mb, b - 1});
    if (b == first && next_reload) items.push_back(*next_reload);
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
