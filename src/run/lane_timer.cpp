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

device::Event LaneTimer::network(device::Event event) {
  if (recorder_ != nullptr) {
    recorder_->sample(issue());
    recorder_->issued(TimelineLane::network, event);
  }
  messages_.note(event, clock_.is_virtual());
  return event;
}

void LaneTimer::copying(device::CopyLane lane, const device::Event& event) {
  if (recorder_ != nullptr)
    recorder_->issued(lane == device::CopyLane::out ? TimelineLane::copy_out : TimelineLane::copy_in, event);
  copies_[static_cast<std::size_t>(lane)].note(event, clock_.is_virtual());
}

void LaneTimer::begin_iteration() {
  totals_ = {};
  exposed_copies_ = Seconds(0);
  computing_.clear();
  for (Transfers* list : {&exchanges_, &reductions_, &messages_, &copies_[0], &copies_[1]}) list->ran.clear();
}

void LaneTimer::end_iteration() {
  for (Transfers* list : {&exchanges_, &reductions_, &messages_, &copies_[0], &copies_[1]}) list->settle();
  Seconds copied;
  for (const Transfers& lane : copies_) copied += union_length(lane.ran);
  totals_.hidden_mitigation_seconds = std::max(Seconds(0), copied - exposed_copies_);
  totals_.all_to_all_seconds = union_length(exchanges_.ran);
  totals_.hidden_all_to_all_seconds = common_length(computing_, exchanges_.ran);
  totals_.gradient_reduction_seconds = union_length(reductions_.ran);
  totals_.hidden_gradient_reduction_seconds =
      std::min(common_length(computing_, reductions_.ran), totals_.gradient_reduction_seconds);
  count_overlap();
}

void LaneTimer::count_overlap() {
  std::vector<device::Interval> all;
  Seconds sum, longest;
  for (const auto* lane : {&computing_, &messages_.ran, &copies_[0].ran, &copies_[1].ran}) {
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
