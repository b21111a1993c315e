#include "device/host/event_state.hpp"

namespace spillway::device {

Event Event::at(Interval ran) {
  auto state = std::make_shared<State>();
  state->ran = ran;
  state->end = ran.end;
  state->finish();
  return Event(std::move(state));
}

bool Event::done() const {
  if (state_ == nullptr || state_->done.load(std::memory_order_acquire)) return true;
  state_->look();
  return state_->done.load(std::memory_order_acquire);
}

void Event::wait() const {
  if (!done()) state_->wait();
}

Seconds Event::end() const { return state_ == nullptr ? Seconds(0) : state_->end; }

Interval Event::ran() const { return state_ == nullptr ? Interval{} : state_->ran; }

}  // namespace spillway::device
