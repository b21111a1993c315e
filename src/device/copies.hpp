#pragma once
// Copies between device and host memory beside the computation, supplied by a backend (host/copies.cpp): one lane out
// and one lane in, each in the order of issue.
#include <array>
#include <memory>
#include <optional>

#include "device/clock.hpp"

namespace spillway::device {

/// An issued copy. Copies of the handle name the same copy and may outlive its engine; a handle that no engine gave
/// names a copy that ended at 0.
class CopyEvent {
 public:
  /// True once the bytes are there and neither side of the copy is touched any more; at once on the virtual clock.
  bool done() const;
  /// Returns once done() holds.
  void wait() const;
  /// When the copy ends, on the virtual clock. 0 on the wall clock, where done() tells.
  Seconds end() const;
  /// When it was under way, on either clock. Valid once done().
  Interval ran() const;

 private:
  friend class CopyEngine;
  struct State;
  std::shared_ptr<State> state_;
};

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;  ///< must not overlap `to`; both stay until the copy is done
  Bytes bytes;                 ///< with zero bytes the pointers are not read
  Seconds ready;               ///< when `from` is: virtual clock only, the wall clock takes it for ready now
  std::optional<CopyEvent> after = std::nullopt;  ///< the copy does not begin before this one has ended
};

/// Used by one thread. On the wall clock each lane has a thread of its own, from its first copy on.
class CopyEngine {
 public:
  /// The clock must outlive the engine. Without `moves_data` (virtual clock) a copy takes its time and moves nothing.
  explicit CopyEngine(Clock& clock, bool moves_data = true);
  /// Returns when all issued copies are done.
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  /// Issues a copy and returns at once. On the virtual clock it is charged to the clock's lane and its bytes are there
  /// on return. Throws EnvironmentError when the lane's thread cannot be started.
  CopyEvent copy(CopyLane lane, const Copy& copy);

  /// Seconds in which the lane copied (not those it waited) since the last reset, of the copies that are done.
  Seconds busy(CopyLane lane) const;
  void reset_busy();

 private:
  struct Lane;
  Clock& clock_;
  bool moves_data_;
  std::array<std::unique_ptr<Lane>, copy_lane_count> lanes_;
};

}  // namespace spillway::device
