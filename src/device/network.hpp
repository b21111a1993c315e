#pragma once
// The lane of messages, supplied by a backend (host/network.cpp). On the wall clock a thread of its own makes the MPI calls
// of everything issued (collectives.hpp), in the order of issue, and drives them on beside the computation. On the
// virtual clock calls are made on the issuing thread, and what they bring is there on return.
#include <memory>

#include "device/clock.hpp"
#include "device/event.hpp"

namespace spillway::device {

/// Used by one thread, which makes no MPI call of its own on the wall clock while something that it issued is under way.
class Network {
 public:
  /// The clock must outlive the network.
  explicit Network(Clock& clock);
  /// Returns when everything issued is done; while an exception unwinds, at once, and messages are left as they are.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  Clock& clock() const { return clock_; }
  /// event.done() and event.wait(), for sends: on the virtual clock nothing else drives them on.
  bool done(const Event& event);
  void wait(const Event& event);

  struct Lane;
  Lane& lane() { return *lane_; }

 private:
  Clock& clock_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace spillway::device
