#pragma once
// How the network makes MPI calls and drives them on.
#include <mpi.h>

#include <functional>
#include <list>
#include <vector>

#include "device/host/event_state.hpp"
#include "device/host/worker.hpp"
#include "device/network.hpp"

namespace spillway::device {

struct Network::Lane {
  /// What keeps the lane busy.
  enum class Busy : unsigned char {
    until_done,  ///< a collective
    to_start,    ///< a send: the lane is free when it has been handed over
    never        ///< a receive: its time is when the message is there
  };
  struct Messages {
    Busy busy;
    std::function<std::vector<MPI_Request>()> start;  ///< what it captures stays until they are done
  };

  Lane(const Clock& clock, bool threaded) : clock_(clock), threaded_(!clock.is_virtual() && threaded) {}
  ~Lane();

  /// Starts the messages. `ran`: when the lane is busy with them, on the virtual clock.
  Event issue(Messages messages, Interval ran = {});
  void look();

 private:
  struct State : Event::State {
    explicit State(Lane& l) : lane(l) {}
    void look() override { lane.poll(); }
    void wait() override { lane.wait(*this); }
    Lane& lane;
  };
  struct Started {
    Messages messages;
    std::vector<MPI_Request> requests;
    std::shared_ptr<State> state;
  };
  /// Drives on what has been started; false where nothing is left.
  bool poll();
  bool poll_locked();
  void wait(const State& state);
  void note_end(const Started& started);
  void drive() noexcept;

  const Clock& clock_;
  const bool threaded_;
  std::mutex mutex_;  // of MPI, started_ and busy_until_
  std::list<Started> started_;
  Seconds busy_until_;  ///< wall clock: by collectives, whose spans shall not overlap
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace spillway::device
