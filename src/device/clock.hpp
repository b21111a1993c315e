#pragma once
// What time it is on a rank: measured, or computed from the work that device calls really handled. Four lanes, compute,
// network, copy-out and copy-in, advance in program order; a result is ready when the operation that makes it ends.
#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "base/compute_lane.hpp"
#include "base/error.hpp"
#include "base/units.hpp"
#include "device/event.hpp"
#include "device/stream.hpp"

namespace spillway::device {

/// Copies between device and host memory: out of the device, and back in.
enum class CopyLane : unsigned char { out, in };
inline constexpr std::size_t copy_lane_count = 2;

/// Seconds of work on the virtual clock. Implemented by run/ from the machine file.
class TimeModel {
 public:
  virtual ~TimeModel() = default;
  virtual Seconds compute(Work work) const = 0;
  /// Of an all-to-all in which member i (world rank ranks[i]) receives received[i] bytes.
  virtual Seconds all_to_all(std::span<const Bytes> received, std::span<const int> ranks) const = 0;
  struct Message {
    Seconds occupied, latency;
  };
  virtual Message message(Bytes bytes, int from, int to) const = 0;
  /// Of a copy between device and host, in either direction.
  virtual Seconds copy(Bytes bytes) const = 0;
  /// Factor by which computation slows down while a copy or a message is under way (ComputeLane says how).
  virtual double interference() const { return 1; }
};

class Clock {
 public:
  /// Wall clock where `model` is null, else virtual. The model must outlive the clock.
  explicit Clock(const TimeModel* model) : model_(model), origin_(std::chrono::steady_clock::now()) {}

  bool is_virtual() const { return model_ != nullptr; }
  const TimeModel& model() const { return *model_; }

  /// Time at which work issued now on the compute lane, with inputs ready at `ready`, would start.
  Seconds compute_start(Seconds ready) const { return is_virtual() ? std::max(compute_.end, ready) : measured(); }
  /// Ends the compute operation that began at `start` and handled `work`.
  Interval compute_end(Seconds start, Work work) {
    if (is_virtual())
      compute_.compute(start, model_->compute(work), model_->interference());
    else
      compute_.end = measured();
    return {start, compute_.end};
  }
  /// Time at which a message issued now, with inputs ready at `ready`, could leave. Virtual clock, as network_end: on the
  /// wall clock messages run beside the issuing thread (network.hpp).
  Seconds network_start(Seconds ready) const { return std::max(network_, ready); }
  /// The network lane has been busy from `start` to `end`.
  Interval network_end(Seconds start, Seconds end) {
    ensure(is_virtual(), "a message of {} s is charged to the clock, but it is a wall clock", (end - start).value);
    network_ = end;
    compute_.transfer(end - start);
    return {start, end};
  }
  /// A copy of `bytes` whose source is ready at `ready`, after the lane's earlier copies. Virtual clock only: on the
  /// wall clock copies run beside the issuing thread (copies.hpp), and InternalError is thrown.
  Interval copy(CopyLane lane, Seconds ready, Bytes bytes) {
    ensure(is_virtual(), "a copy of {} bytes is charged to the clock, but it is a wall clock", bytes.value);
    Seconds& end = copies_[static_cast<std::size_t>(lane)];
    const Seconds start = std::max(end, ready);
    end = start + model_->copy(bytes);
    compute_.transfer(end - start);
    return {start, end};
  }
  /// Latest of the lanes; on the wall clock the time it is.
  Seconds now() const {
    if (!is_virtual()) return measured();
    return std::max({compute_.settled(model_->interference()), network_, copies_[0], copies_[1]});
  }
  /// When zero was, on the node's steady clock; of no use on the virtual clock.
  std::chrono::steady_clock::time_point origin() const { return origin_; }
  /// All lanes go on together, when the latest of them is through. Virtual clock.
  void barrier() {
    const Seconds latest = now();
    compute_ = {latest, latest};
    network_ = latest;
    copies_ = {latest, latest};
  }
  /// End of the last compute operation.
  Seconds compute_lane() const { return compute_.end; }
  /// End of the lane's last copy; 0 on the wall clock.
  Seconds copy_lane(CopyLane lane) const { return copies_[static_cast<std::size_t>(lane)]; }
  /// Begins again at zero: seconds of an iteration do not depend, even in their last bit, on what ran before it.
  void restart() {
    origin_ = std::chrono::steady_clock::now();
    compute_ = {};
    network_ = Seconds(0);
    copies_ = {};
  }

 private:
  Seconds measured() const {
    return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - origin_).count());
  }
  const TimeModel* model_;
  std::chrono::steady_clock::time_point origin_;
  ComputeLane compute_;
  Seconds network_;
  std::array<Seconds, copy_lane_count> copies_{};
};

}  // namespace spillway::device
