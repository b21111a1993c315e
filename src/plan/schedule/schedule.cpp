#include "plan/schedule/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
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

std::vector<int> last_backward_of_chunks(std::span<const Task> order) {
  std::vector<int> last;
  for (const Task& task : order) {
    last.resize(std::max(last.size(), static_cast<std::size_t>(task.chunk) + 1));
    if (task.kind == Kind::backward) last[static_cast<std::size_t>(task.chunk)] = task.micro_batch;
  }
  return last;
}

namespace {

/// One replica of the pipeline: how far its stages are, and what they have done.
class Column {
 public:
  explicit Column(const Schedule& schedule) : schedule_(schedule), next_(schedule.size(), 0) {
    for (const auto& order : schedule) {
      for (const Task& task : order) chunks_ = std::max(chunks_, task.chunk + 1);
      coupled_from_.push_back(first_final_backward(order));
    }
  }

  std::span<const Task> unit(int stage) const {
    const auto r = static_cast<std::size_t>(stage);
    return unit_at(schedule_[r], next_[r]);
  }
  /// Whether the stage's next unit moves gradients that are final.
  bool coupled(int stage) const {
    const auto r = static_cast<std::size_t>(stage);
    return next_[r] + unit(stage).size() > coupled_from_[r];
  }
  bool ready(int stage) const {
    const auto tasks = unit(stage);
    return !tasks.empty() && std::all_of(tasks.begin(), tasks.end(), [&](const Task& t) { return has_data(stage, t); });
  }
  void run(int stage) {
    for (const Task& t : unit(stage)) done_.insert({stage, t.kind, t.micro_batch, t.chunk});
    next_[static_cast<std::size_t>(stage)] += unit(stage).size();
  }

 private:
  /// The data dependencies of a task: its neighbour in pipeline order, and its own forward for a backward.
  bool has_data(int stage, const Task& t) const {
    const int stages = static_cast<int>(schedule_.size());
    if (t.kind == Kind::forward) {
      if (stage > 0) return done_.contains({stage - 1, Kind::forward, t.micro_batch, t.chunk});
      return t.chunk == 0 || done_.contains({stages - 1, Kind::forward, t.micro_batch, t.chunk - 1});
    }
    if (!done_.contains({stage, Kind::forward, t.micro_batch, t.chunk})) return false;
    if (stage < stages - 1) return done_.contains({stage + 1, Kind::backward, t.micro_batch, t.chunk});
    return t.chunk == chunks_ - 1 || done_.contains({0, Kind::backward, t.micro_batch, t.chunk + 1});
  }

  const Schedule& schedule_;
  std::vector<std::size_t> next_, coupled_from_;    // [stage]
  std::set<std::tuple<int, Kind, int, int>> done_;  // stage, kind, micro-batch, chunk
  int chunks_ = 1;
};

/// Runs the stage's next unit in `mine`, or in all columns where it is coupled. False when it has to wait.
bool run_next(std::vector<Column>& columns, Column& mine, int stage) {
  if (!mine.ready(stage)) return false;
  if (!mine.coupled(stage)) {
    mine.run(stage);
    return true;
  }
  const auto same = [&](const Column& other) {
    return other.coupled(stage) && other.ready(stage) && std::ranges::equal(other.unit(stage), mine.unit(stage));
  };
  if (!std::all_of(columns.begin(), columns.end(), same)) return false;
  for (Column& column : columns) column.run(stage);
  return true;
}

}  // namespace

std::size_t first_final_backward(std::span<const Task> order) {
  std::size_t first = order.size();
  std::set<int> seen;  // chunks
  for (std::size_t i = order.size(); i-- > 0;)
    if (order[i].kind == Kind::backward && seen.insert(order[i].chunk).second) first = i;
  return first;
}

std::string find_deadlock(const Schedule& schedule) { return find_deadlock(std::span(&schedule, 1)); }

std::string find_deadlock(std::span<const Schedule> replicas) {
  std::vector<Column> columns(replicas.begin(), replicas.end());
  const int stages = static_cast<int>(replicas.front().size());
  for (bool progress = true; progress;) {
    progress = false;
    for (Column& column : columns)
      for (int stage = 0; stage < stages; ++stage)
        while (run_next(columns, column, stage)) progress = true;
  }
  for (std::size_t c = 0; c < columns.size(); ++c)
    for (int stage = 0; stage < stages; ++stage)
      if (const auto unit = columns[c].unit(stage); !unit.empty())
        return fmt::format("stage {}{} waits for ever before {}", stage,
                           columns.size() > 1 ? fmt::format(" of column {}", c) : "", to_text(unit));
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
