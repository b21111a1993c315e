#pragma once
// All-to-all times between ranks of a node and between nodes, as lines through sizes.
#include <mpi.h>

#include <optional>
#include <span>

#include "run/calibrate_statistics.hpp"

namespace spillway {

struct NetworkRates {
  std::optional<MessageFit> node;     ///< ranks of one node among themselves; empty where every rank is alone
  std::optional<MessageFit> network;  ///< all ranks, bytes from other nodes; empty on one node
};
struct MessagePlan {
  std::span<const Bytes> sizes;  ///< that a rank receives, its own part included
  int repetitions;               ///< of each size
  Bytes memory;                  ///< buffers walk through so much, more than caches hold; at least twice a size
};
/// Collective over `comm`; node_of_rank names the node of each of its ranks. The result is the same on all ranks: that
/// of the first node whose ranks have company.
NetworkRates measure_network(MPI_Comm comm, std::span<const int> node_of_rank, const MessagePlan& plan);

}  // namespace spillway
