#include "plan/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace spillway {
namespace {

using Kind = Task::Kind;

/// The task at `index`, with its other half where it is a fused unit; empty at the end.
std::span<const Task> unit_at(std::span<const Task> order, std::size_t index) {
  if (index >= order.size()) return {};
  return order.subspan(index, order[index].beside_next ? 2 : 1);
}

}  // namespace

Schedule one_forward_one_backward(ScheduleShape shape) {
  Schedule schedule(shape.stages);
  for (int stage = 0; stage < shape.stages; ++stage) {
    const int warm_up = std::min(shape.stages - stage - 1, shape.micro_batches);
    auto& order = schedule[stage];
    // 1. warm-up: forwards only
    for (int i = 0; i < warm_up; ++i) order.push_back({Kind::forward, i, 0});
    // 2. steady state: F then B
    for (int i = warm_up; i < shape.micro_batches; ++i) {
      order.push_back({Kind::forward, i, 0});
      order.push_back({Kind::backward, i - warm_up, 0});
    }
    // 3. cool-down: the remaining backwards
    for (int i = shape.micro_batches - warm_up; i < shape.micro_batches; ++i) order.push_back({Kind::backward, i, 0});
  }
  return schedule;
}

std::string find_deadlock(const Schedule& schedule) {
  const int stages = static_cast<int>(schedule.size());
  std::vector<std::size_t> next(stages, 0);
  std::set<std::tuple<int, Kind, int, int>> done;  // stage, kind, micro-batch, chunk
  int chunks = 1;
  for (const auto& order : schedule)
    for (const Task& task : order) chunks = std::max(chunks, task.chunk + 1);

  // The data dependencies of a task: its neighbour in pipeline order, and its own forward for a backward.
  const auto ready = [&](int stage, const Task& t) {
    if (t.kind == Kind::forward) {
      if (stage > 0) return done.contains({stage - 1, Kind::forward, t.micro_batch, t.chunk});
      return t.chunk == 0 || done.contains({stages - 1, Kind::forward, t.micro_batch, t.chunk - 1});
    }
    if (!done.contains({stage, Kind::forward, t.micro_batch, t.chunk})) return false;
    if (stage < stages - 1) return done.contains({stage + 1, Kind::backward, t.micro_batch, t.chunk});
    return t.chunk == chunks - 1 || done.contains({0, Kind::backward, t.micro_batch, t.chunk + 1});
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < stages; ++stage)
      for (auto unit = unit_at(schedule[stage], next[stage]); !unit.empty();
           unit = unit_at(schedule[stage], next[stage])) {
        if (!std::all_of(unit.begin(), unit.end(), [&](const Task& t) { return ready(stage, t); })) break;
        for (const Task& t : unit) done.insert({stage, t.kind, t.micro_batch, t.chunk});
        next[stage] += unit.size();
        progress = true;
      }
  }
  for (int stage = 0; stage < stages; ++stage)
    if (next[stage] < schedule[stage].size()) {
      return fmt::format("stage {} waits for ever before {}", stage, to_text(unit_at(schedule[stage], next[stage])));
    }
  return {};
}

std::string to_text(std::span<const Task> order) {
  const bool chunked = std::any_of(order.begin(), order.end(), [](const Task& t) { return t.chunk > 0; });
  std::string text;
  bool beside = false;
  for (const Task& t : order) {
    if (!text.empty()) text += beside ? '+' : ' ';
    beside = t.beside_next;
    text += fmt::format("{}{}", t.kind == Kind::forward ? 'F' : 'B', t.micro_batch);
    if (chunked) text += fmt::format(".{}", t.chunk);
  }
  return text;
}

int peak_live(std::span<const Task> order) {
  int live = 0, peak = 0;
  for (const Task& t : order) {
    live += t.kind == Kind::forward ? 1 : -1;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace spillway
