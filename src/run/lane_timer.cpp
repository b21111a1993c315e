#include "run/lane_timer.hpp"

#include <algorithm>

#include "run/intervals.hpp"

namespace spillway {

void LaneTimer::Transfers::note(const device::Event& event, bool known) {
  if (known)
    ran.push_back(event.ran());
  else
    under_way.push_back(event);
}

void LaneTimer::Transfers::settle() {
  for (const device::Event& event : under_way) {
    event.wait();
    ran.push_back(event.ran());
  }
  under_way.clear();
  sort_by_start(ran);
}

Seconds LaneTimer::Transfers::busy() const { return union_length(ran); }

device::Event LaneTimer::network(device::Event event, Message kind) {
  if (recorder_ != nullptr) {
    recorder_->sample(issue());
    recorder_->issued(TimelineLane::network, event);
  }
  of(kind).note(event, clock_.is_virtual());
  return event;
}

void LaneTimer::network(device::Interval ran, Message kind) { of(kind).ran.push_back(ran); }

void LaneTimer::copying(device::CopyLane lane, const device::Event& event) {
  if (recorder_ != nullptr)
    recorder_->issued(lane == device::CopyLane::out ? TimelineLane::copy_out : TimelineLane::copy_in, event);
  copies_[static_cast<std::size_t>(lane)].note(event, clock_.is_virtual());
}

void LaneTimer::begin_iteration() {
  totals_ = {};
  exposed_copies_ = Seconds(0);
  computing_.clear();
  for (Transfers& list : messages_) list.ran.clear();
  for (Transfers& list : copies_) list.ran.clear();
}

void LaneTimer::end_iteration() {
  for (Transfers& list : messages_) list.settle();
  for (Transfers& list : copies_) list.settle();
  const Seconds copied = copies_[0].busy() + copies_[1].busy();
  totals_.hidden_mitigation_seconds = std::max(Seconds(0), copied - exposed_copies_);
  const Transfers &exchanges = of(Message::exchange), &reductions = of(Message::reduction);
  totals_.all_to_all_seconds = exchanges.busy();
  totals_.hidden_all_to_all_seconds = std::min(common_length(computing_, exchanges.ran), exchanges.busy());
  totals_.gradient_reduction_seconds = reductions.busy();
  totals_.hidden_gradient_reduction_seconds = std::min(common_length(computing_, reductions.ran), reductions.busy());
  count_overlap();
}

void LaneTimer::count_overlap() {
  std::vector<device::Interval> network, all;
  for (const Transfers& list : messages_) network.insert(network.end(), list.ran.begin(), list.ran.end());
  sort_by_start(network);
  Seconds sum, longest;
  for (const auto* lane : {&computing_, &network, &copies_[0].ran, &copies_[1].ran}) {
    const Seconds busy = union_length(*lane);
    sum += busy;
    longest = std::max(longest, busy);
    all.insert(all.end(), lane->begin(), lane->end());
  }
  sort_by_start(all);
  totals_.overlappable_seconds = sum - longest;
  totals_.overlapped_seconds = std::clamp(sum - union_length(all), Seconds(0), totals_.overlappable_seconds);
}

}  // namespace spillway
