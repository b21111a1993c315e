#include "plan/program/task_script.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

bool is_layer(const StageBlock& block) { return block.kind == BlockKind::moe || block.kind == BlockKind::dense; }
bool is_backward(const Task& task) { return task.kind == Task::Kind::backward; }

/// True when task `index`, a backward, finds its last block's reloads already issued by the task before.
bool reloaded_ahead(std::span<const Task> order, std::size_t index) {
  if (index == 0) return false;
  return is_backward(order[index - 1]) || order[index - 1].micro_batch != order[index].micro_batch;
}

}  // namespace

bool receives_input(std::span<const StageBlock> blocks) { return is_layer(blocks.front()); }
bool sends_output(std::span<const StageBlock> blocks) { return is_layer(blocks.back()); }

std::vector<Item> task_script(std::span<const Task> order, std::size_t index, std::span<const StageBlock> blocks) {
  const int mb = order[index].micro_batch, last = static_cast<int>(blocks.size()) - 1;
  const bool reloads_next =
      index + 1 < order.size() && is_backward(order[index + 1]) && reloaded_ahead(order, index + 1);
  const Item next_reload{Kind::reload, reloads_next ? order[index + 1].micro_batch : 0, last};
  std::vector<Item> items;
  if (!is_backward(order[index])) {
    if (reloads_next) items.push_back(next_reload);
    if (receives_input(blocks)) items.push_back({Kind::receive_input, mb, 0});
    for (int b = 0; b <= last; ++b) items.push_back({Kind::forward, mb, b});
    if (sends_output(blocks)) items.push_back({Kind::send_output, mb, last});
    return items;
  }
  if (!reloaded_ahead(order, index)) items.push_back({Kind::reload, mb, last});
  if (sends_output(blocks)) items.push_back({Kind::receive_gradient, mb, last});
  for (int b = last; b >= 0; --b) {
    if (b > 0) items.push_back({Kind::reload, mb, b - 1});
    if (b == 0 && reloads_next) items.push_back(next_reload);
    items.push_back({Kind::backward, mb, b});
  }
  if (receives_input(blocks)) items.push_back({Kind::send_gradient, mb, 0});
  return items;
}

}  // namespace spillway
