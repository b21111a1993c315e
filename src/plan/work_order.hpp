#pragma once
// What a rank issues, one thing after the other: messages and instructions in the order of the schedule, with the
// decisions taken on the way. The halves of a fused unit come in turns. Executor, projection and books follow it.
#include <optional>
#include <vector>

#include "plan/fused_window.hpp"
#include "plan/reduction_places.hpp"
#include "plan/step_plan.hpp"

namespace spillway {

struct WorkStep {
  Item item;                                 ///< the message, or the pass that the instruction belongs to
  const Instruction* instruction = nullptr;  ///< null: the item is a message
  Part part = Part::whole;
  bool first = false, last = false;  ///< instruction of its item
  bool is_gate = false;              ///< the loads are known after it: gate() comes before advance()
  /// A place for reductions: seconds of computation that may hide them, if they are issued before the step.
  std::optional<Seconds> hides_reductions = {};
  bool gradients_final = false;  ///< with it the block's last backward pass of the iteration ends
};

/// One iteration at a time; the plan must outlive it and is advanced by it alone.
class WorkOrder {
 public:
  explicit WorkOrder(StepPlan& plan)
      : plan_(plan),
        windows_({plan.blocks().begin(), plan.blocks().end()}, plan.machine()),
        last_backward_(last_backward_of_chunks(plan.order())) {
    for (const StageBlock& block : plan.blocks()) places_.push_back(reduction_places(block, plan.machine()));
  }

  void begin_iteration(std::int64_t iteration);
  bool finished() const { return at_ == steps_.size() && plan_.finished(); }
  const WorkStep& current() const { return steps_[at_]; }
  void advance();

  /// What the gate exchange, the current step, has brought: the rest of the block is decided.
  void gate(const StepPlan::Gate& gate);
  /// The same for a forecast, by this rank's rows alone.
  void gate_at(ExpertRows rows);

 private:
  /// Makes the steps of the plan's items up to the first that has any.
  void fill();
  void make_steps();
  /// Both halves, without the parts that have been issued, in turns.
  void add_window(std::size_t forwards_done, std::size_t backwards_done);
  /// What comes after the gate, decided anew.
  void replace_rest();
  /// Marks places for reductions among the steps of a backward pass, and its end.
  void mark_reductions();

  StepPlan& plan_;
  WindowPlanner windows_;
  std::vector<int> last_backward_;       ///< [chunk]: micro-batch
  std::vector<ReductionPlaces> places_;  ///< [block]
  std::vector<WorkStep> steps_;          ///< of the current item, and the one beside it
  std::size_t at_ = 0;
};

}  // namespace spillway
