#pragma once
// Runs iterations of one stage with real data: takes tasks in schedule order, carries out their block programs, keeps the
// books beside the arena, and turns out of memory into an event.
#include <optional>
#include <string>

#include "metrics/step_record.hpp"
#include "plan/work_order.hpp"
#include "run/gradient_step.hpp"
#include "run/operator_runner.hpp"
#include "run/rows_in_flight.hpp"
#include "run/watchdog.hpp"

namespace spillway {

/// One iteration as this rank saw it; the job-wide fields are agreed by all ranks.
struct IterationOutcome {
  IterationRecord record;
  RankIteration mine;
  std::vector<std::string> faults;  ///< broken promises found on the way (conservation, finite loss)
};

class Executor {
 public:
  struct Setup {
    const Case& run_case;
    const RoutingSource& routing;
    std::span<const int> node_of_rank;
    Watchdog* watchdog = nullptr;
    bool checks_order = false;  ///< of the messages of every group
  };
  Executor(Setup setup, Engine& engine, StepPlan& plan, device::Clock& clock);

  /// Collective over the world. `step` is the optimizer's, from 1.
  IterationOutcome run(std::int64_t iteration, std::int64_t step);
  /// Iterations are recorded from now on; not where null. The caller ends each.
  void record(TimelineRecorder* recorder) { timer_.record(recorder); }

  /// Books of everything issued since construction.
  const Books& books() const { return books_; }

 private:
  void carry_out(WorkStep step);
  void carry_out_message(const Item& item);
  /// Allocates, runs, releases; drains instead once the iteration is lost.
  void carry_out(int micro_batch, int block, const Instruction& instruction, Part part);
  /// Runs a decision, which takes wall time on either clock.
  template <class Decision>
  void decide(const Decision& decision);
  /// Copies and casts. False when memory does not suffice.
  bool move(const device::TensorKey& key, const Instruction& instruction);
  bool allocate(int micro_batch, int block, Tensor tensor, std::string_view for_whom, const ExpertRows& rows = {});
  void lose(std::string_view operator_name);
  void start_draining();
  MessageEnd message_end(const Item& item) const;
  /// The same at both ends of a pipeline message, unique in the iteration.
  std::int64_t message_number(const device::Group& group, int sender, int tag) const;
  /// On the wall clock the wait for the message is put off until its block begins.
  void receive(const device::Group& group, const MessageEnd& from, device::TensorKey key);
  void finish_receive(device::TensorKey key);
  WorkLabel receive_label(device::TensorKey key) const;
  void send(const device::Group& group, const MessageEnd& to, device::TensorKey key);
  void agree(IterationOutcome& outcome);
  void count_loads(IterationOutcome& outcome);
  void check_conservation(IterationOutcome& outcome);

  Setup setup_;
  Engine& engine_;
  StepPlan& plan_;
  WorkOrder order_;
  device::Stream stream_;
  LaneTimer timer_;
  OperatorRunner operators_;
  GradientReducer gradients_;
  Books books_;
  struct Receiving {
    device::TensorKey key;
    device::Arrival message;
    std::int64_t number;
  };
  std::vector<Receiving> receiving_;
  std::vector<device::Event> sent_;
  std::optional<OutOfMemory> event_;
  bool draining_ = false;
  RowsInFlight rows_in_flight_;
  std::vector<float> scratch_, previous_message_;
};

}  // namespace spillway
