#include <algorithm>

#include "device/host/network_lane.hpp"

namespace spillway::device {

Network::Network(Clock& clock) : clock_(clock), lane_(std::make_unique<Lane>(clock)) {}

Network::~Network() = default;

bool Network::done(const Event& event) {
  if (clock_.is_virtual()) lane_->poll();
  return event.done();
}

void Network::wait(const Event& event) {
  if (!clock_.is_virtual()) return event.wait();
  while (!done(event)) std::this_thread::yield();
}

Event Network::Lane::issue(Messages messages) {
  if (!clock_.is_virtual()) return enqueue(std::move(messages));
  std::vector<MPI_Request> requests = messages.start();
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  return {};
}

Event Network::Lane::issue_send(Messages messages, Interval ran) {
  if (!clock_.is_virtual()) return enqueue(std::move(messages));
  auto state = std::make_shared<Event::State>();
  state->ran = ran;
  state->end = ran.end;
  std::vector<MPI_Request> requests = messages.start();
  started_.push_back({std::move(messages), std::move(requests), state});
  return Event(std::move(state));
}

Event Network::Lane::enqueue(Messages messages) {
  auto state = std::make_shared<Event::State>();
  worker_.issue([this, messages = std::move(messages), state]() mutable { begin(std::move(messages), state); });
  return Event(std::move(state));
}

void Network::Lane::begin(Messages messages, std::shared_ptr<Event::State> state) {
  state->ran.start = clock_.now();
  if (state->ran.start < busy_until_) busy_until_ = Seconds(0);  // the clock has been restarted
  std::vector<MPI_Request> requests = messages.start();
  state->ran.end = clock_.now();
  started_.push_back({std::move(messages), std::move(requests), std::move(state)});
}

bool Network::Lane::poll() {
  for (auto s = started_.begin(); s != started_.end();) {
    int done = 0;
    MPI_Testall(static_cast<int>(s->requests.size()), s->requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) note_end(*s);
    s = done != 0 ? started_.erase(s) : std::next(s);
  }
  return !started_.empty();
}

void Network::Lane::note_end(const Started& started) {
  Interval& ran = started.state->ran;
  if (!clock_.is_virtual() && started.messages.busy != Busy::to_start) {
    ran.end = clock_.now();
    ran.start = started.messages.busy == Busy::never ? ran.end : std::max(ran.start, busy_until_);
    if (started.messages.busy == Busy::until_done) busy_until_ = ran.end;
  }
  started.state->finish();
}

}  // namespace spillway::device
