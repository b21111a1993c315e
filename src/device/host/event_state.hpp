#pragma once
// What an event's lane and those who wait for it share.
#include <atomic>

#include "device/event.hpp"

namespace spillway::device {

struct Event::State {
  virtual ~State() = default;
  /// What done() and wait() do before the work is known to be done. Here a thread of the lane carries it out.
  virtual void look() {}
  virtual void wait() { done.wait(false, std::memory_order_acquire); }

  Seconds end;
  Interval ran{};
  std::atomic<bool> done = false;

  void finish() {
    done.store(true, std::memory_order_release);
    done.notify_all();
  }
};

}  // namespace spillway::device
