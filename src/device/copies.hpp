#pragma once
// Copies between device and host memory beside the computation, supplied by a backend (host/copies.cpp): one lane out
// and one lane in, each in the order of issue.
#include <array>
#include <memory>
#include <optional>

#include "device/clock.hpp"
#include "device/event.hpp"

namespace spillway::device {

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;  ///< must not overlap `to`; both stay until the copy is done
  Bytes bytes;                 ///< with zero bytes the pointers are not read
  Seconds ready;               ///< when `from` is: virtual clock only, the wall clock takes it for ready now
  std::optional<Event> after = std::nullopt;  ///< the copy does not begin before this one has ended
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
  Event copy(CopyLane lane, const Copy& copy);

 private:
  struct Lane;
  Clock& clock_;
  bool moves_data_;
  std::array<std::unique_ptr<Lane>, copy_lane_count> lanes_;
};

}  // namespace spillway::device
