#pragma once
// Messages between ranks, supplied by a backend (host/collectives.cpp). Every call says when its inputs are ready and
// returns an event: on the wall clock at once, and all that the call was given stays until the event is done (small lists
// apart, which are copied); on the virtual clock when the data are there, and the ranks' times travel with the messages.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/communicators.hpp"
#include "device/matrix.hpp"
#include "device/network.hpp"

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
Event all_to_all(Network& network, const Group& group, const RowExchange& exchange, Seconds ready);

/// Collective over `group`: `mine` [n, h] of every member, in member order, into `all` [members * n, h]. `mine` may be its
/// own place in `all`.
Event all_gather_rows(Network& network, const Group& group, Matrix<const float> mine, Matrix<float> all, Seconds ready);

/// Collective over `group`: `sent` [members * n, h] has n rows for every member; `received` [members * n, h] holds those
/// for this rank in member order. With the sum over members it is a reduce-scatter.
Event exchange_rows(Network& network, const Group& group, Matrix<const float> sent, Matrix<float> received,
                    Seconds ready);

/// Collective over `group`: `mine` of every member, in member order, into `all` [members * mine.size()].
Event all_gather(Network& network, const Group& group, std::span<const std::int64_t> mine, std::span<std::int64_t> all,
                 Seconds ready);

/// Collective over `group`: piece i of `pieces` (one per member, equal sizes) goes to member i; `received` holds the
/// members' pieces for this rank in member order.
Event exchange_pieces(Network& network, const Group& group, std::span<const float* const> pieces, std::int64_t elements,
                      float* received, Seconds ready);

/// Collective over `group`: member i's `elements` values at pieces[i] reach pieces[i] of every member.
Event gather_pieces(Network& network, const Group& group, std::span<float* const> pieces, std::int64_t elements,
                    Seconds ready);

/// Collective over `group`, and blocking: whether all members say the same. Takes no virtual time.
bool all_say(Network& network, const Group& group, std::uint64_t what);

/// What travels beside a pipeline message.
struct MessageHeader {
  double arrival = 0;         ///< virtual clock: when the message is there
  std::int64_t draining = 0;  ///< the sender's iteration is lost
};

struct PipelineMessage {
  int to = 0;   ///< member of the group
  int tag = 0;  ///< unique between two ranks of a group
  Matrix<const float> matrix;
  bool draining = false;
  std::shared_ptr<void> memory = nullptr;  ///< kept until the message has left
};

/// Point-to-point over `group`. Returns at once. Once the event is done, the matrix may be used again; event.ran() is the
/// time on the sender's network lane.
Event send(Network& network, const Group& group, const PipelineMessage& message, Seconds ready);

/// A message that is on its way to this rank.
struct Arrival {
  Event event;                                  ///< event.ran().end: when it is there
  std::shared_ptr<const MessageHeader> header;  ///< valid once the event is done
};

/// Receives what `send` sent with this tag.
Arrival receive(Network& network, const Group& group, int from, int tag, Matrix<float> matrix);

}  // namespace spillway::device
