#include <algorithm>
#include <chrono>
#include <exception>

#include "device/host/network_lane.hpp"

namespace spillway::device {
namespace {

/// Between two looks of the thread at what is under way.
constexpr std::chrono::microseconds nap(50);

}  // namespace

Network::Network(Clock& clock, bool thread) : clock_(clock), lane_(std::make_unique<Lane>(clock, thread)) {}

Network::~Network() = default;

void Network::look() { lane_->look(); }

Network::Lane::~Lane() {
  while (std::uncaught_exceptions() == 0 && poll()) std::this_thread::yield();
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

Event Network::Lane::issue(Messages messages, Interval ran) {
  if (threaded_ && !thread_.joinable()) thread_ = start_thread("messages", [this] { drive(); });
  auto state = std::make_shared<State>(*this);
  const std::lock_guard lock(mutex_);
  if (clock_.is_virtual()) {
    state->end = ran.end;
  } else {
    ran.start = clock_.now();
    if (ran.start < busy_until_) busy_until_ = Seconds(0);  // the clock has been restarted
  }
  std::vector<MPI_Request> requests = messages.start();
  if (!clock_.is_virtual()) ran.end = clock_.now();
  state->ran = ran;
  started_.push_back({std::move(messages), std::move(requests), state});
  return Event(std::move(state));
}

bool Network::Lane::poll() {
  const std::lock_guard lock(mutex_);
  return poll_locked();
}

bool Network::Lane::poll_locked() {
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

void Network::Lane::wait(const State& state) {
  while (!state.done.load(std::memory_order_acquire)) {
    std::this_thread::yield();
    poll();
  }
}

void Network::Lane::look() {
  if (!clock_.is_virtual() && !threaded_) poll();
}

/// The work of the thread. Where the issuing thread is at it, it need not wait for its turn.
void Network::Lane::drive() noexcept {
  while (!stopping_) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) poll_locked();
    std::this_thread::sleep_for(nap);
  }
}

}  // namespace spillway::device
