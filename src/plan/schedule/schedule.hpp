#pragma once
// A pipeline schedule is data: the order in which every stage runs its forward and backward micro-batches.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

struct Task {
  enum class Kind : unsigned char { forward, backward } kind = Kind::forward;
  int micro_batch = 0;
  int chunk = 0;  ///< model chunk (virtual stage) on this stage
  /// A forward task that is issued side by side with the task after it, a backward one: a fused unit. Both begin when both
  /// have what they need.
  bool beside_next = false;
  bool barrier_after = false;  ///< the rank's lanes wait for each other after it
  bool operator==(const Task&) const = default;
};

/// tasks[stage] is the order of that stage.
using Schedule = std::vector<std::vector<Task>>;

struct ScheduleShape {
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;  ///< model chunks (virtual stages) of every stage
};

/// One forward, one backward (PipeDream-flush, as Megatron-LM runs it without interleaving): stage r runs
/// min(stages - r - 1, micro_batches) forwards first, then alternates, then drains. One chunk, whatever the shape says.
Schedule one_forward_one_backward(ScheduleShape shape);

/// Of each chunk of a stage the micro-batch that goes backward last: behind it the chunk's gradients are final.
std::vector<int> last_backward_of_chunks(std::span<const Task> order);
/// Index of the first such backward task: from it on a stage may reduce gradients.
std::size_t first_final_backward(std::span<const Task> order);

/// Proves that every task can run when each stage takes its tasks strictly in order and a task waits for the tasks it
/// needs data from: the neighbour's, where the last stage's chunk c is followed by the first stage's chunk c + 1. A fused
/// unit waits for what both its tasks need, and gives both results at its end.
/// Returns an empty string, or what is stuck.
std::string find_deadlock(const Schedule& schedule);
/// The same for replicas of a pipeline (data- and tensor-parallel columns) whose orders may differ where fused units are
/// taken in turn. From its first final backward task on a stage reduces gradients with itself in the other columns: there
/// it begins every task together with them, which is more than reductions ask for.
std::string find_deadlock(std::span<const Schedule> replicas);

/// "F0 F1 B0 ..." for one stage; "F0.0 F1.0 F0.1 ..." (micro-batch.chunk) where it has several chunks; "F4+B0" is a fused
/// unit.
std::string to_text(std::span<const Task> order);

/// Most (micro-batch, chunk) pairs of a stage that are forward done, backward not.
int peak_live(std::span<const Task> order);

}  // namespace spillway
