#pragma once
// Keeps the clock while operators run, and counts where a rank's time goes.
#include <array>
#include <vector>

#include "device/clock.hpp"
#include "device/stream.hpp"
#include "metrics/step_record.hpp"
#include "plan/program/block_program.hpp"
#include "run/timeline_recorder.hpp"

namespace spillway {

class LaneTimer {
 public:
  /// What the compute lane was waiting for when it stands idle.
  enum class Waits : unsigned char { collective, pipeline };
  /// Messages whose seconds are reported: dispatch and combine, pieces of the gradient reduction.
  enum class Message : unsigned char { exchange, reduction, other };

 private:
  /// Whose work is issued, and whom idle time before it is counted to.
  struct Attribution {
    Waits waits = Waits::pipeline;
    bool mitigation = false, waits_for_mitigation = false;
    Seconds copied, otherwise;
  };

 public:
  LaneTimer(device::Clock& clock, device::Stream& stream) : clock_(clock), stream_(stream) {}

  device::Clock& clock() { return clock_; }
  device::Stream& stream() { return stream_; }

  /// Lanes are recorded from now on; not where null.
  void record(TimelineRecorder* recorder) { recorder_ = recorder; }
  TimelineRecorder* recorder() { return recorder_; }
  /// What follows is recorded under this label.
  void label(const WorkLabel& label) {
    if (recorder_ != nullptr) recorder_->label(label, issue());
  }

  /// Marks what follows as the work of a mitigation, or not.
  void set_mitigation(bool mitigation) { attribution_.mitigation = mitigation; }
  /// What follows waits until `copied` for copies, and until `otherwise` for everything else.
  void set_copied(Seconds copied, Seconds otherwise) {
    attribution_.copied = copied;
    attribution_.otherwise = otherwise;
  }
  /// Wall time spent waiting for a copy, while the compute lane stood idle.
  void waited_for_copy(Seconds seconds) { count_exposed(seconds); }

  /// Runs device work on the compute lane once its inputs are ready; returns when the result is.
  template <class Body>
  Seconds compute(Seconds ready, const Body& body) {
    const Seconds idle_since = clock_.compute_lane();
    const Seconds start = clock_.compute_start(ready);
    if (recorder_ != nullptr) recorder_->sample(start);
    body();
    const device::Work work = stream_.take();
    const device::Interval interval = clock_.compute_end(start, work);
    if (recorder_ != nullptr) recorder_->computed(interval);
    const bool copy_is_last = clock_.is_virtual() && attribution_.copied >= start && start > idle_since;
    const Seconds for_copies = copy_is_last ? start - std::max(idle_since, attribution_.otherwise) : Seconds(0);
    attribution_.copied = attribution_.otherwise = Seconds(0);
    count_exposed(for_copies);
    count_idle(start - idle_since - for_copies);
    totals_.compute_seconds += interval.duration();
    if (!computing_.empty() && computing_.back().end == interval.start)
      computing_.back().end = interval.end;
    else
      computing_.push_back(interval);
    if (attribution_.mitigation) {
      totals_.mitigation_seconds += interval.duration();
      totals_.mitigation_flops += work.flops;
    }
    return interval.end;
  }
  /// What an operator's pass earns: nothing where it is done again.
  void count_model_flops(const Instruction& instruction, const BlockContext& context, const ExpertRows& rows) {
    if (instruction.recompute) return;
    totals_.model_flops_causal += model_flops(instruction.op, instruction.pass, context, rows, true);
    totals_.model_flops_noncausal += model_flops(instruction.op, instruction.pass, context, rows, false);
  }
  /// Notes any operation issued to the network lane; returns it.
  device::Event network(device::Event event, Message kind = Message::other);
  /// The same where the time alone is known (projections).
  void network(device::Interval ran, Message kind = Message::other);
  /// The compute lane needs what a collective brings: returns when that is there, on the wall clock having waited.
  Seconds arrive(const device::Event& collective) {
    waits_for(Waits::collective);
    collective.wait();
    return collective.end();
  }
  /// Notes a pipeline message that leaves; `number` is the same at its other end, unique in the iteration.
  void sent(const device::Event& event, std::int64_t number) {
    network(event);
    if (recorder_ != nullptr) recorder_->sent(number, event);
  }
  void received(std::int64_t number, Seconds arrival) {
    if (recorder_ != nullptr) recorder_->received(number, arrival);
  }
  /// Notes a copy that has been issued.
  void copying(device::CopyLane lane, const device::Event& event);
  /// From now on this rank only drains.
  void draining() {
    if (recorder_ != nullptr) recorder_->drain(clock_.now());
  }
  /// Notes a message the compute lane may have to wait for. Waiting for it is mitigation where the message is
  /// one's, whatever computes next.
  void waits_for(Waits what) {
    attribution_.waits = what;
    attribution_.waits_for_mitigation = attribution_.mitigation && what == Waits::collective;
  }

  /// While it lives, what is issued belongs to the gradient step; afterwards to what it did before.
  class Aside {
   public:
    explicit Aside(LaneTimer& timer) : timer_(timer), before_(timer.attribution_) {
      timer.attribution_ = {};
      timer.attribution_.waits = Waits::collective;
    }
    ~Aside() { timer_.attribution_ = before_; }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    LaneTimer& timer_;
    const Attribution before_;
  };

  /// The lanes wait for each other.
  void barrier() {
    if (!clock_.is_virtual()) return;
    count_idle(clock_.now() - clock_.compute_lane());
    clock_.barrier();
  }

  RankIteration& totals() { return totals_; }
  void begin_iteration();
  /// Counts what ran beside computation, of copies, dispatches and combines; everything issued is done.
  void end_iteration();

 private:
  /// When what is issued now is entered in the books.
  Seconds issue() const { return clock_.is_virtual() ? clock_.compute_lane() : clock_.now(); }
  void count_exposed(Seconds idle) {
    totals_.mitigation_seconds += idle;
    exposed_copies_ += idle;
  }
  void count_idle(Seconds idle) {
    if (attribution_.waits_for_mitigation)
      totals_.mitigation_seconds += idle;
    else
      (attribution_.waits == Waits::collective ? totals_.exposed_communication_seconds : totals_.bubble_seconds) +=
          idle;
  }

  /// How much of the lanes' busy time fell together, and how much could have.
  void count_overlap();

  /// What ran beside the issuing thread. On the wall clock times are known when it is done.
  struct Transfers {
    std::vector<device::Interval> ran;
    std::vector<device::Event> under_way;

    void note(const device::Event& event, bool known);
    void settle();
    Seconds busy() const;
  };
  Transfers& of(Message kind) { return messages_[static_cast<std::size_t>(kind)]; }

  device::Clock& clock_;
  device::Stream& stream_;
  TimelineRecorder* recorder_ = nullptr;
  RankIteration totals_;
  Attribution attribution_;
  Seconds exposed_copies_;
  std::vector<device::Interval> computing_;
  std::array<Transfers, 3> messages_;  ///< [Message]
  std::array<Transfers, device::copy_lane_count> copies_;
};

}  // namespace spillway
