#include "plan/schedule/fused_units.hpp"

#include <algorithm>

#include "plan/schedule/interleaved.hpp"

namespace spillway {

int warm_up_of_units(const ScheduleShape& shape, int stage) {
  const int all = shape.micro_batches * shape.chunks;
  const int before = shape.chunks == 1 ? 2 * (shape.stages - stage - 1) : warm_up_forwards(shape, stage);
  return std::min(before + 1, all);
}

namespace {

Schedule units_after(const ScheduleShape& shape, int (*warm_up_of)(const ScheduleShape&, int)) {
  Schedule schedule;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int warm_up = warm_up_of(shape, stage);
    auto order = order_with_warm_up(shape, warm_up);
    for (auto i = static_cast<std::size_t>(warm_up); i < order.size() && order[i].kind == Task::Kind::forward; i += 2)
      order[i].beside_next = true;
    schedule.push_back(std::move(order));
  }
  return schedule;
}

}  // namespace

Schedule fused_units(const ScheduleShape& shape) { return units_after(shape, warm_up_of_units); }

Schedule fused_units_with_barriers(const ScheduleShape& shape) {
  Schedule schedule = units_after(shape, [](const ScheduleShape& s, int stage) {
    return std::min(warm_up_forwards(s, stage) + 1, s.micro_batches * s.chunks);
  });
  for (auto& order : schedule)
    for (std::size_t i = 1; i < order.size(); ++i) order[i].barrier_after = order[i - 1].beside_next;
  return schedule;
}

Schedule in_turn(Schedule schedule) {
  for (auto& order : schedule)
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      if (!order[i].beside_next) continue;
      order[i].beside_next = false;
      std::swap(order[i], order[i + 1]);
    }
  return schedule;
}

std::vector<int> stages_without_units(const Schedule& schedule) {
  std::vector<int> stages;
  for (std::size_t r = 0; r < schedule.size(); ++r)
    if (std::none_of(schedule[r].begin(), schedule[r].end(), [](const Task& t) { return t.beside_next; }))
      stages.push_back(static_cast<int>(r));
  return stages;
}

}  // namespace spillway
