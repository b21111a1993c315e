#pragma once
// Names work that was issued to a lane beside the issuing thread: copies and messages. Supplied by a backend
// (host/event.cpp).
#include <memory>

#include "base/units.hpp"

namespace spillway::device {

struct Interval {
  Seconds start, end;
  Seconds duration() const { return end - start; }
};

/// Copies of an event name the same work and may outlive its lane; one that no lane gave names work that ended at 0.
class Event {
 public:
  struct State;
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Work that is known to run so, on the virtual clock.
  static Event at(Interval ran);

  /// True once the work is done: what it brings is there, and nothing that it uses is touched any more.
  bool done() const;
  /// Returns once done() holds.
  void wait() const;
  /// When the result is there, on the virtual clock. 0 on the wall clock, where done() tells.
  Seconds end() const;
  /// When the lane was busy with it, on either clock. Valid once done(), on the virtual clock from the beginning.
  Interval ran() const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace spillway::device
