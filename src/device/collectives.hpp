#pragma once
// Messages between ranks, supplied by a backend (host/collectives.cpp). Every call says when its inputs are ready and
// returns when it ran; on the virtual clock the ranks' times travel with the messages.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/clock.hpp"
#include "device/communicators.hpp"
#include "device/matrix.hpp"

namespace spillway::device {

/// Rows for every member of the group, and one fp32 number beside each row where all members say `weighted`.
struct RowExchange {
  Matrix<const float> sent;                 ///< [sum of sent_rows, h], by destination
  std::span<const std::int64_t> sent_rows;  ///< per member; zero is fine
  Matrix<float> received;                   ///< [sum of received_rows, h], by source
  std::span<const std::int64_t> received_rows;
  bool weighted = false;               ///< never told from the pointers: a member without rows may have none
  const float* sent_weight = nullptr;  ///< [rows sent]
  float* received_weight = nullptr;    ///< [rows received]
};

/// Collective over `group`: all-to-all of rows with exact counts. Counts are in rows, so bytes may pass 2 GiB.
Interval all_to_all(Clock& clock, const Group& group, const RowExchange& exchange, Seconds ready);

/// Collective over `group`: `mine` [n, h] of every member, in member order, into `all` [members * n, h]. `mine` may be its
/// own place in `all`.
Interval all_gather_rows(Clock& clock, const Group& group, Matrix<const float> mine, Matrix<float> all, Seconds ready);

/// Collective over `group`: `sent` [members * n, h] has n rows for every member; `received` [members * n, h] holds those
/// for this rank in member order. With the sum over members it is a reduce-scatter.
Interval exchange_rows(Clock& clock, const Group& group, Matrix<const float> sent, Matrix<float> received,
                       Seconds ready);

/// Collective over `group`: `mine` of every member, in member order, into `all` [members * mine.size()].
Interval all_gather(Clock& clock, const Group& group, std::span<const std::int64_t> mine, std::span<std::int64_t> all,
                    Seconds ready);

/// Collective over `group`: piece i of `pieces` (one per member, equal sizes) goes to member i; `received` holds the
/// members' pieces for this rank in member order.
Interval exchange_pieces(Clock& clock, const Group& group, std::span<const float* const> pieces, std::int64_t elements,
                         float* received, Seconds ready);

/// Collective over `group`: member i's `elements` values at pieces[i] reach pieces[i] of every member.
Interval gather_pieces(Clock& clock, const Group& group, std::span<float* const> pieces, std::int64_t elements,
                       Seconds ready);

/// What travels beside a pipeline message.
struct MessageHeader {
  double arrival = 0;         ///< virtual clock: when the message is there
  std::int64_t draining = 0;  ///< the sender's iteration is lost
};

struct PipelineMessage;

/// A message that may still be read by the network. Copies share the requests.
class Transfer {
 public:
  /// True once the sent memory may be used again.
  bool done() const;
  void wait() const;
  /// Keeps `memory` alive as long as the transfer.
  void keep(std::shared_ptr<void> memory) { state_->memory = std::move(memory); }

 private:
  friend Transfer send(Clock&, const Group&, const PipelineMessage&, Seconds, Interval&);
  struct State {
    MessageHeader header;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::shared_ptr<void> memory;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct PipelineMessage {
  int to = 0;   ///< member of the group
  int tag = 0;  ///< unique between two ranks of a group
  Matrix<const float> matrix;
  bool draining = false;
};

/// Point-to-point over `group`. Returns at once; the matrix must stay until the transfer is done. `interval` receives
/// the time on the sender's network lane.
Transfer send(Clock& clock, const Group& group, const PipelineMessage& message, Seconds ready, Interval& interval);

/// Receives what `send` sent with this tag. On the wall clock `arrival` is the time at return.
MessageHeader receive(Clock& clock, const Group& group, int from, int tag, Matrix<float> matrix);

}  // namespace spillway::device
