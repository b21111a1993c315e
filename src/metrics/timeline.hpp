#pragma once
// What every lane of a rank did and what its memory held, moment by moment, in the Trace Event format that the viewers of
// Chrome and Perfetto read: one process per rank, one track per lane, a counter of memory, arrows for messages.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ledger.hpp"
#include "base/units.hpp"

namespace spillway {

enum class TimelineLane : unsigned char { compute, network, copy_out, copy_in };
inline constexpr std::array<std::string_view, 4> timeline_lane_names = {"compute", "network", "copy-out", "copy-in"};

/// Why something was done: the category of its span.
enum class WorkKind : unsigned char {
  forward,
  backward,
  recompute,      ///< forward work repeated before backward
  mitigation,     ///< copies to the host tier and back, casts to FP8 and back
  pipeline,       ///< messages between stages
  gradient_step,  ///< reduction, optimizer, gather
  drain           ///< of an iteration that is lost
};
inline constexpr std::array<std::string_view, 7> work_kind_names = {"forward",    "backward", "recompute",
                                                                    "mitigation", "pipeline", "gradient_step",
                                                                    "drain"};

/// What is being done, and for which block. Names live as long as the program.
struct WorkLabel {
  std::string_view name;          ///< of the operator, the copy or the message
  std::string_view subject = {};  ///< tensor that is copied, cast or sent; else empty
  WorkKind kind = WorkKind::forward;
  int micro_batch = -1, layer = -1, slice = -1;  ///< -1: of none
};
/// "fc1", "fc1 backward", "fc1 recompute", "offload fc1_input": what viewers and profilers show.
std::string title(const WorkLabel& label);

struct TimelineSpan {
  TimelineLane lane;
  WorkLabel label;
  Seconds begin, end;
};

/// One end of a message. Both ends share `id`, which no other message of the timeline has.
struct MessageMark {
  std::int64_t id = 0;
  bool sent = false;  ///< else received: marked where the receiver first computes with it
  TimelineLane lane = TimelineLane::network;
  Seconds at;  ///< inside a span of the lane
};

/// Live bytes from `at` on, until the next sample.
struct MemorySample {
  Seconds at;
  std::array<Bytes, category_count> device;
  Bytes host;  ///< in the host tier
};

/// One attempt at an iteration; attempts follow each other without gaps.
struct IterationMark {
  std::int64_t iteration = 0;
  Seconds begin, seconds;
  std::string policy;  ///< in force
  double imbalance = 1;
  bool lost = false;  ///< to an out-of-memory event
};

/// All of one rank, in seconds since the first attempt began.
struct RankTimeline {
  int rank = 0;
  std::string place;  ///< "stage 1, data 0, expert 2"
  std::vector<TimelineSpan> spans;
  std::vector<MessageMark> messages;
  std::vector<MemorySample> memory;
  std::vector<IterationMark> iterations;
};

/// What the whole file is about.
struct TimelineHeader {
  std::string case_name, policy, machine, hash, version;
  std::vector<std::int64_t> iterations;
  int ranks = 1;
  Bytes memory_cap;            ///< that the sum of a rank's device categories may not exceed; policies without one may
  bool virtual_clock = false;  ///< times are computed from the machine file, not measured
};

// A file is timeline_head, the ranks' events with ",\n" between them, timeline_tail.
/// Ends where the first event begins.
std::string timeline_head(const TimelineHeader& header);
/// One event per line, without a comma after the last. Times in microseconds, to the nanosecond.
std::string timeline_events(const RankTimeline& rank, bool virtual_clock);
std::string timeline_tail();

}  // namespace spillway
