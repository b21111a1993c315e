#pragma once
// Records one rank's timeline while it runs. Bounded: only the iterations asked for are kept.
#include <optional>
#include <vector>

#include "device/copies.hpp"
#include "metrics/step_record.hpp"
#include "metrics/timeline.hpp"

namespace spillway {

struct TimelineOptions {
  std::string policy;
  std::vector<std::int64_t> iterations;  ///< empty: the first one in a burst, or else the first
};

/// On the wall clock ranks leave the barrier before an iteration one after the other: how much later than the first of
/// its node this rank did, and the latest of all.
struct ClockSkew {
  Seconds mine, largest;
};

class TimelineRecorder {
 public:
  explicit TimelineRecorder(TimelineOptions options) : options_(std::move(options)) {}

  const TimelineOptions& options() const { return options_; }
  /// Settles which iterations are kept, where the options leave it open.
  void choose(std::int64_t iteration) {
    if (options_.iterations.empty()) options_.iterations = {iteration};
  }
  bool wants(std::string_view policy, std::int64_t iteration) const;

  /// Begins an attempt at an iteration whose clock starts at zero; the ledgers must live until its end.
  void begin(const ByteLedger& device, const ByteLedger* host);
  /// Ends it, when all copies and messages have been issued.
  void end(const IterationRecord& record, const ClockSkew& skew = {});

  /// What follows is done under this label, from `now` on.
  void label(const WorkLabel& label, Seconds now);
  /// The compute lane was busy under the current label.
  void computed(device::Interval interval);
  /// Notes live bytes where they have changed. Books close at issue: a moment before the last one noted counts as that.
  void sample(Seconds now);
  /// A copy or message that has been issued under the current label.
  void issued(TimelineLane lane, const device::Event& event);
  /// A message that leaves while the event runs.
  void sent(std::int64_t message, const device::Event& event);
  /// A message that the current label's block waits for.
  void received(std::int64_t message, Seconds arrival);
  /// The rank has lost the iteration: from now on it only takes part in messages.
  void drain(Seconds now);

  const RankTimeline& timeline() const { return timeline_; }
  RankTimeline& timeline() { return timeline_; }

 private:
  struct Issued {
    TimelineLane lane;
    device::Event event;
    WorkLabel label;
  };
  struct Leaving {
    std::int64_t message;
    device::Event event;
  };
  struct Awaited {
    std::int64_t message;
    Seconds arrival;
    int micro_batch, layer;
  };
  void shift(Seconds by);
  void add(TimelineLane lane, const WorkLabel& label, device::Interval interval);
  std::int64_t unique(std::int64_t message) const;

  TimelineOptions options_;
  RankTimeline timeline_;
  Seconds origin_;  ///< of the attempt, on the timeline
  std::int64_t attempt_ = 0;
  std::size_t first_span_ = 0, first_message_ = 0, first_sample_ = 0;  ///< of the attempt
  const ByteLedger *device_ = nullptr, *host_ = nullptr;
  WorkLabel label_;
  std::vector<Issued> issued_;
  std::vector<Leaving> leaving_;
  std::vector<Awaited> awaited_;
  std::optional<Seconds> draining_since_;
};

}  // namespace spillway
