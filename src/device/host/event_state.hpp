#pragma once
// What an event's lane and those who wait for it share.
#include <atomic>

#include "device/event.hpp"

namespace spillway::device {

struct Event::State {
  Seconds end;
  Interval ran{};
  std::atomic<bool> done = false;

  void finish() {
    done.store(true, std::memory_order_release);
    done.notify_all();
  }
};

}  // namespace spillway::device
