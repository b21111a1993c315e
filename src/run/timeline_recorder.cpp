#include "run/timeline_recorder.hpp"

#include <algorithm>

namespace spillway {
namespace {

/// Messages of one attempt have ids below it.
constexpr std::int64_t messages_per_attempt = std::int64_t{1} << 40;

}  // namespace

bool TimelineRecorder::wants(std::string_view policy, std::int64_t iteration) const {
  const auto& list = options_.iterations;
  return policy == options_.policy && std::find(list.begin(), list.end(), iteration) != list.end();
}

void TimelineRecorder::begin(const ByteLedger& device, const ByteLedger* host) {
  device_ = &device;
  host_ = host;
  label_ = {};
  first_span_ = timeline_.spans.size();
  first_message_ = timeline_.messages.size();
  first_sample_ = timeline_.memory.size();
  sample(Seconds(0));
}

void TimelineRecorder::end(const IterationRecord& record, const ClockSkew& skew) {
  for (const Issued& i : issued_) {
    i.event.wait();
    add(i.lane, i.label, i.event.ran());
  }
  for (const Leaving& m : leaving_)
    timeline_.messages.push_back({unique(m.message), true, TimelineLane::network, origin_ + m.event.ran().start});
  issued_.clear();
  leaving_.clear();
  if (draining_since_) {
    const Seconds from = *draining_since_, to = std::max(from, record.seconds);
    add(TimelineLane::compute, {"draining", "", WorkKind::drain}, {from, to});
    for (const Awaited& m : awaited_)
      timeline_.messages.push_back(
          {unique(m.message), false, TimelineLane::compute, origin_ + std::clamp(m.arrival, from, to)});
  }
  awaited_.clear();
  draining_since_.reset();
  sample(record.seconds);
  shift(skew.mine);
  timeline_.iterations.push_back(
      {record.index, origin_, record.seconds, record.policy, record.imbalance, !record.completed()});
  origin_ += record.seconds + skew.largest;
  ++attempt_;
}

void TimelineRecorder::shift(Seconds by) {
  for (std::size_t i = first_span_; i < timeline_.spans.size(); ++i) {
    timeline_.spans[i].begin += by;
    timeline_.spans[i].end += by;
  }
  for (std::size_t i = first_message_; i < timeline_.messages.size(); ++i) timeline_.messages[i].at += by;
  for (std::size_t i = first_sample_; i < timeline_.memory.size(); ++i) timeline_.memory[i].at += by;
}

void TimelineRecorder::label(const WorkLabel& label, Seconds now) {
  sample(now);
  label_ = label;
}

void TimelineRecorder::computed(device::Interval interval) {
  add(TimelineLane::compute, label_, interval);
  std::erase_if(awaited_, [&](const Awaited& m) {
    const bool here = m.micro_batch == label_.micro_batch && m.layer == label_.layer && m.arrival <= interval.start;
    if (here) timeline_.messages.push_back({unique(m.message), false, TimelineLane::compute, origin_ + interval.start});
    return here;
  });
}

void TimelineRecorder::sample(Seconds now) {
  MemorySample next{origin_ + now, {}, host_ != nullptr ? host_->live() : Bytes(0)};
  for (std::size_t c = 0; c < category_count; ++c) next.device[c] = device_->live(static_cast<Category>(c));
  if (!timeline_.memory.empty()) {
    const MemorySample& last = timeline_.memory.back();
    if (last.device == next.device && last.host == next.host) return;
    next.at = std::max(next.at, last.at);
  }
  timeline_.memory.push_back(next);
}

void TimelineRecorder::issued(TimelineLane lane, const device::Event& event) {
  issued_.push_back({lane, event, label_});
}

void TimelineRecorder::sent(std::int64_t message, const device::Event& event) { leaving_.push_back({message, event}); }

void TimelineRecorder::received(std::int64_t message, Seconds arrival) {
  awaited_.push_back({message, arrival, label_.micro_batch, label_.layer});
}

void TimelineRecorder::drain(Seconds now) {
  if (draining_since_) return;
  sample(now);
  draining_since_ = now;
}

void TimelineRecorder::add(TimelineLane lane, const WorkLabel& label, device::Interval interval) {
  timeline_.spans.push_back({lane, label, origin_ + interval.start, origin_ + interval.end});
}

std::int64_t TimelineRecorder::unique(std::int64_t message) const { return attempt_ * messages_per_attempt + message; }

}  // namespace spillway
