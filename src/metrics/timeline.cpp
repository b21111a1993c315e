#include "metrics/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

/// Whole nanoseconds, so that spans which touch still do after rounding.
double nanoseconds(Seconds s) { return std::round(s.value * 1e9); }
double microseconds(Seconds s) { return nanoseconds(s) / 1e3; }

/// Viewers take thread 0 for an idle one.
int track(TimelineLane lane) { return static_cast<int>(lane) + 1; }

/// Collects events, one per line.
class Lines {
 public:
  void add(const Json& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_names(Lines& lines, const RankTimeline& r, bool virtual_clock) {
  const auto metadata = [&](const char* name, Json arguments, std::optional<int> tid = std::nullopt) {
    Json event = {{"ph", "M"}, {"name", name}, {"pid", r.rank}};
    if (tid) event["tid"] = *tid;
    event["args"] = std::move(arguments);
    lines.add(event);
  };
  metadata("process_name", {{"name", fmt::format("rank {}: {}", r.rank, r.place)}});
  metadata("process_labels", {{"labels", virtual_clock ? "virtual clock, not measured" : "wall clock"}});
  metadata("process_sort_index", {{"sort_index", r.rank}});
  for (std::size_t lane = 0; lane < timeline_lane_names.size(); ++lane) {
    const int tid = track(static_cast<TimelineLane>(lane));
    metadata("thread_name", {{"name", timeline_lane_names[lane]}}, tid);
    metadata("thread_sort_index", {{"sort_index", tid}}, tid);
  }
}

void add_iterations(Lines& lines, const RankTimeline& r) {
  if (r.rank != 0) return;  // marks span all processes
  for (const IterationMark& mark : r.iterations)
    lines.add({{"ph", "i"},
               {"name", fmt::format("iteration {} under {}", mark.iteration, mark.policy)},
               {"s", "g"},
               {"ts", microseconds(mark.begin)},
               {"pid", r.rank},
               {"tid", track(TimelineLane::compute)},
               {"args",
                {{"iteration", mark.iteration},
                 {"policy", mark.policy},
                 {"imbalance", mark.imbalance},
                 {"seconds", mark.seconds.value},
                 {"out_of_memory", mark.lost}}}});
}

void add_spans(Lines& lines, const RankTimeline& r) {
  for (const TimelineSpan& span : r.spans) {
    const WorkLabel& label = span.label;
    Json arguments = Json::object();
    if (label.micro_batch >= 0) arguments["micro_batch"] = label.micro_batch;
    if (label.layer >= 0) arguments["layer"] = label.layer;
    if (label.slice >= 0) arguments["slice"] = label.slice;
    lines.add({{"ph", "X"},
               {"name", title(label)},
               {"cat", work_kind_names[static_cast<std::size_t>(label.kind)]},
               {"ts", microseconds(span.begin)},
               {"dur", (nanoseconds(span.end) - nanoseconds(span.begin)) / 1e3},
               {"pid", r.rank},
               {"tid", track(span.lane)},
               {"args", arguments}});
  }
}

void add_messages(Lines& lines, const RankTimeline& r) {
  for (const MessageMark& mark : r.messages) {
    Json event = {{"ph", mark.sent ? "s" : "f"}, {"name", "message"}, {"cat", "message"},       {"id", mark.id},
                  {"ts", microseconds(mark.at)}, {"pid", r.rank},     {"tid", track(mark.lane)}};
    if (!mark.sent) event["bp"] = "e";  // ends at the span around it, not at the next one
    lines.add(event);
  }
}

void add_memory(Lines& lines, const RankTimeline& r) {
  const bool host = std::any_of(r.memory.begin(), r.memory.end(), [](const auto& m) { return m.host > Bytes(0); });
  for (const MemorySample& sample : r.memory) {
    const auto counter = [&](const char* name, Json arguments) {
      lines.add({{"ph", "C"},
                 {"name", name},
                 {"ts", microseconds(sample.at)},
                 {"pid", r.rank},
                 {"args", std::move(arguments)}});
    };
    Json live;
    for (std::size_t c = 0; c < category_count; ++c) live[std::string(category_names[c])] = sample.device[c].value;
    counter("memory (bytes)", std::move(live));
    if (host) counter("host tier (bytes)", {{"offloaded", sample.host.value}});
  }
}

}  // namespace

std::string title(const WorkLabel& label) {
  std::string text(label.name);
  if (!label.subject.empty()) text.append(" ").append(label.subject);
  if (label.kind == WorkKind::backward) text += " backward";
  if (label.kind == WorkKind::recompute) text += " recompute";
  return text;
}

std::string timeline_head(const TimelineHeader& h) {
  const Json about = {{"case", h.case_name},
                      {"policy", h.policy},
                      {"iterations", h.iterations},
                      {"clock", h.virtual_clock ? "virtual" : "wall"},
                      {"times", h.virtual_clock ? fmt::format("computed from machine file {}, not measured", h.machine)
                                                : std::string("measured")},
                      {"machine", h.machine},
                      {"ranks", h.ranks},
                      {"memory_cap_bytes", h.memory_cap.value},
                      {"hash", h.hash},
                      {"version", "spillway " + h.version}};
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\n\"otherData\":{},\n\"traceEvents\":[\n",
                     about.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string timeline_events(const RankTimeline& rank, bool virtual_clock) {
  Lines lines;
  add_names(lines, rank, virtual_clock);
  add_iterations(lines, rank);
  add_spans(lines, rank);  // before the arrows: an arrow belongs to the span around it
  add_messages(lines, rank);
  add_memory(lines, rank);
  return lines.take();
}

std::string timeline_tail() { return "\n]}\n"; }

}  // namespace spillway
