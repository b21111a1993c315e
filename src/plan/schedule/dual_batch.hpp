#pragma once
// Fused dual-batch execution: the forward pass of one micro-batch and the backward pass of another, with the offloads of
// a third and the reloads of a fourth, are issued as one stream of work (BaGuaLu-2, arXiv 2610.23064). What is chosen is
// the order of issue alone.
#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace spillway {

/// In-order resources of a rank that work beside one another.
enum class Lane : unsigned char { compute, network, copy_out, copy_in };
inline constexpr std::size_t lane_count = 4;

/// Sequences of work whose inner order is fixed, and which do not wait for each other (but see Segment::needs).
enum class ChainId : unsigned char { forward, backward, offload, reload };
inline constexpr std::size_t chain_count = 4;

/// Work on one lane: an operator, or several that are issued together.
struct Segment {
  Lane lane = Lane::compute;
  Seconds seconds;  ///< alone on the machine
  int needs = 0;  ///< in the offload chain: it starts after the first `needs` segments of the forward chain have ended
};

/// A window of execution.
struct DualBatch {
  /// [chain]: forward and backward on compute and network, offloads on copy_out, reloads on copy_in.
  std::array<std::vector<Segment>, chain_count> chains;
  double interference = 1;  ///< factor of ComputeLane: slow-down of computation beside copies and messages

  const std::vector<Segment>& of(ChainId c) const { return chains[static_cast<std::size_t>(c)]; }
  std::vector<Segment>& of(ChainId c) { return chains[static_cast<std::size_t>(c)]; }
};

/// Throws InternalError for a segment on a lane its chain does not have, a negative or infinite duration, an offload that
/// needs more forward segments than there are, or a factor below 1.
void validate(const DualBatch& batch);

/// An order of issue: for every segment of the window the chain that it is the next one of.
using IssueOrder = std::vector<ChainId>;

/// When the segments of an issue order run.
struct IssuedWork {
  struct Item {
    ChainId chain;
    int index;  ///< in its chain
    Seconds start, end;
  };
  std::vector<Item> items;  ///< in the order of issue
  Seconds makespan;
};

/// Times of an order of issue: a segment starts when the last one issued on its lane, the one before it in its chain and
/// what it needs have ended; nothing else waits. Computation is slowed as ComputeLane says, and its lane ends settled.
/// Throws InternalError for an order that is not one of this window or issues an offload before what it needs.
IssuedWork issue(const DualBatch& batch, std::span<const ChainId> order);

/// The makespan of issue(), cheaper, for an order known to be one of the window.
Seconds makespan(const DualBatch& batch, std::span<const ChainId> order);

/// All reloads, then the forward chain, each offload right after what it needs, then the backward chain.
IssueOrder plain_order(const DualBatch& batch);

/// "R F F O B ..."
std::string to_text(std::span<const ChainId> order);

}  // namespace spillway
