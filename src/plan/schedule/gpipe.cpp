#include "plan/schedule/gpipe.hpp"

namespace spillway {

Schedule gpipe(const ScheduleShape& shape) {
  std::vector<Task> order;
  for (const Task::Kind kind : {Task::Kind::forward, Task::Kind::backward})
    for (int i = 0; i < shape.micro_batches; ++i) order.push_back({kind, i, 0});
  return Schedule(static_cast<std::size_t>(shape.stages), order);
}

}  // namespace spillway
