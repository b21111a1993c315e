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

  explicit Lane(const Clock& clock) : clock_(clock), worker_("messages", [this] { return poll(); }) {}

  /// Starts the messages, on the wall clock after those issued before. On the virtual clock they are done on return.
  Event issue(Messages messages);
  /// As issue, for a send: on the virtual clock poll() drives it on, and `ran` says when the lane is busy.
  Event issue_send(Messages messages, Interval ran);
  /// Drives on what has been started; false where nothing is left.
  bool poll();

 private:
  struct Started {
    Messages messages;
    std::vector<MPI_Request> requests;
    std::shared_ptr<Event::State> state;
  };
  Event enqueue(Messages messages);
  void begin(Messages messages, std::shared_ptr<Event::State> state);
  void note_end(const Started& started);

  const Clock& clock_;
  std::list<Started> started_;
  Seconds busy_until_;  ///< wall clock: by collectives, whose spans shall not overlap
  Worker worker_;       // last: its thread uses the others
};

}  // namespace spillway::device
