#pragma once
// The order of issue of a fused dual batch with the least makespan.
#include <cstddef>
#include <memory>

#include "plan/schedule/dual_batch.hpp"

namespace spillway {

/// Where offloads and reloads may stand in the order. When a copy runs depends on lanes of its own and on the forward
/// chain, never on when it was issued; its place decides only which computation it is charged to (ComputeLane).
enum class Copies : unsigned char {
  early,    ///< each as soon as it may be issued: when it really runs, and as plain_order does
  anywhere  ///< a wider choice in which a copy may be charged to later computation than it runs beside; far slower
};

struct Interleaving {
  IssueOrder order;
  Seconds makespan;
  Seconds plain_makespan;  ///< of plain_order
};

/// Exact minimum of the makespan over all orders of issue with copies as said, by dynamic programming over how much of
/// each chain has been issued. A state keeps every vector of lane and chain ends that no other one beats in all
/// components; that is enough, because later ends grow with each of them (ComputeLane). What cannot become shorter than
/// the best order known (WindowBounds) is dropped. Without interference both choices of Copies give the same minimum.
///
/// Exact but for rounding: an order replaces another one where it is shorter by more than 1e-12 of it, so that plain_order
/// stays where nothing is gained. The same on every machine with IEEE arithmetic.
class Interleaver {
 public:
  Interleaver();
  Interleaver(Interleaver&&) noexcept;
  Interleaver& operator=(Interleaver&&) noexcept;
  ~Interleaver();
  /// Keeps its buffers from call to call. Throws as validate(batch).
  Interleaving operator()(const DualBatch& batch, Copies copies = Copies::early);
  /// Partial orders that the last search of the last call kept: its size.
  std::size_t partial_orders() const;

 private:
  class Search;
  std::unique_ptr<Search> search_;
};

Interleaving interleave(const DualBatch& batch, Copies copies = Copies::early);

}  // namespace spillway
