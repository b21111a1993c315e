#include "device/copies.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "device/host/event_state.hpp"
#include "device/host/worker.hpp"

namespace spillway::device {
namespace {

void move_bytes(const Copy& copy) {
  if (copy.bytes.value > 0) std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes.value));
}

}  // namespace

/// The clock restarts only while no copy is under way.
struct CopyEngine::Lane {
  Worker worker{"copies between device and host"};
};

CopyEngine::CopyEngine(Clock& clock, bool moves_data)
    : clock_(clock), moves_data_(moves_data), lanes_{std::make_unique<Lane>(), std::make_unique<Lane>()} {}

CopyEngine::~CopyEngine() = default;

Event CopyEngine::copy(CopyLane lane, const Copy& copy) {
  if (clock_.is_virtual()) {
    const Seconds ready = copy.after ? std::max(copy.ready, copy.after->end()) : copy.ready;
    if (moves_data_) move_bytes(copy);
    return Event::at(clock_.copy(lane, ready, copy.bytes));
  }
  auto state = std::make_shared<Event::State>();
  lanes_[static_cast<std::size_t>(lane)]->worker.issue([this, copy, state] {
    if (copy.after) copy.after->wait();
    state->ran.start = clock_.now();
    move_bytes(copy);
    state->ran.end = clock_.now();
    state->finish();
  });
  return Event(std::move(state));
}

}  // namespace spillway::device
