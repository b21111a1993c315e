#pragma once
// The lane of messages, supplied by a backend (host/network.cpp). Messages are started in the order of issue
// (collectives.hpp) and driven on by whoever waits for one of them, on the wall clock also by look() or by a thread. On the
// virtual clock what they bring is there on return.
#include <memory>

#include "device/clock.hpp"
#include "device/event.hpp"

namespace spillway::device {

/// Used by one thread, which makes no MPI call of its own while something that it issued is under way.
class Network {
 public:
  /// The clock must outlive the network. `thread`: on the wall clock a thread drives messages on from the first one, whatever
  /// the issuing thread does; it wants a core of its own.
  explicit Network(Clock& clock, bool thread = false);
  /// Returns when everything issued is done; while an exception unwinds, at once, and messages are left as they are.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Clock& clock() const { return clock_; }
  /// Drives on what is under way, on the wall clock where no thread does. To be called between pieces of work.
  void look();

  struct Lane;
  Lane& lane() { return *lane_; }

 private:
  Clock& clock_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace spillway::device
