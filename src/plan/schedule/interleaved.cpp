#include "plan/schedule/interleaved.hpp"

#include <algorithm>

namespace spillway {
namespace {

using Kind = Task::Kind;

/// Forwards of any stage [micro_batches x chunks]: group by group, chunk by chunk.
std::vector<Task> forward_order(const ScheduleShape& shape) {
  std::vector<Task> forwards;
  int first = 0;
  for (const int size : micro_batch_groups(shape)) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = first; i < first + size; ++i) forwards.push_back({Kind::forward, i, chunk});
    first += size;
  }
  return forwards;
}

}  // namespace

std::vector<int> micro_batch_groups(const ScheduleShape& shape) {
  const int groups = std::max(1, shape.micro_batches / shape.stages);
  std::vector<int> sizes(groups, shape.micro_batches / groups);
  for (int g = 0; g < shape.micro_batches % groups; ++g) ++sizes[g];
  return sizes;
}

int warm_up_forwards(const ScheduleShape& shape, int stage) {
  const long long to_the_end = shape.stages - stage - 1, all = 1LL * shape.micro_batches * shape.chunks;
  if (shape.chunks == 1) return static_cast<int>(std::min(to_the_end, all));
  return static_cast<int>(std::min(2 * to_the_end + (shape.chunks - 1LL) * micro_batch_groups(shape).front(), all));
}

std::vector<Task> order_with_warm_up(const ScheduleShape& shape, int forwards_first) {
  const std::vector<Task> forwards = forward_order(shape);
  const std::size_t all = forwards.size(), warm_up = static_cast<std::size_t>(forwards_first);
  const auto backward = [&](std::size_t k) {
    return Task{Kind::backward, forwards[k].micro_batch, shape.chunks - 1 - forwards[k].chunk};
  };
  std::vector<Task> order(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
  for (std::size_t k = warm_up; k < all; ++k) {
    order.push_back(forwards[k]);
    order.push_back(backward(k - warm_up));
  }
  for (std::size_t k = all - warm_up; k < all; ++k) order.push_back(backward(k));
  return order;
}

std::vector<Task> interleaved_order(const ScheduleShape& shape, int stage) {
  return order_with_warm_up(shape, warm_up_forwards(shape, stage));
}

Schedule interleaved_one_forward_one_backward(const ScheduleShape& shape) {
  Schedule schedule;
  for (int stage = 0; stage < shape.stages; ++stage) schedule.push_back(interleaved_order(shape, stage));
  return schedule;
}

}  // namespace spillway
