#include "plan/program/memory_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plan/cost/operator_cost.hpp"

namespace spillway {

Bytes micro_batch_bytes(std::span<const StageBlock> blocks, std::span<const ExpertRows> rows) {
  Bytes sum;
  for (std::size_t i = 0; i < blocks.size(); ++i) sum += saved_bytes(blocks[i].kind, blocks[i].context, rows[i]);
  return sum;
}

std::vector<MemoryPoint> memory_curve(std::span<const Task> order, const SavedBytes& saved) {
  std::vector<MemoryPoint> curve;
  curve.reserve(order.size());
  Bytes live;
  for (const Task& task : order) {
    if (task.kind == Task::Kind::forward)
      live += saved(task);
    else
      live -= saved(task);
    curve.push_back({static_cast<int>(curve.size()), live});
  }
  return curve;
}

std::string memory_chart(std::span<const Task> order, std::span<const MemoryPoint> curve) {
  constexpr int width = 60;
  Bytes highest(1);
  for (const MemoryPoint& point : curve) highest = std::max(highest, point.live);
  std::string text;
  for (const MemoryPoint& point : curve) {
    const auto length = static_cast<std::size_t>(std::lround(width * (point.live / highest)));
    const std::string task = to_text(order.subspan(static_cast<std::size_t>(point.task), 1));
    text += fmt::format("{:<6} |{:<{}}| {:.3f} MiB\n", task, std::string(length, '#'), width, mebibytes(point.live));
  }
  return text;
}

}  // namespace spillway
