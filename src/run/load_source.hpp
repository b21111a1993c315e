#pragma once
// Loads of a job from its routing, without data: what the gates of a run will exchange.
#include <array>
#include <map>

#include "plan/program/stage.hpp"
#include "run/case.hpp"
#include "workload/routing/token_runs.hpp"
#include "workload/shape/slices.hpp"

namespace spillway {

/// The tokens of a micro-batch that a rank has between matrix products: a tensor-parallel rank has the contiguous share of
/// its coordinate, T = S / t.
std::vector<TokenRun> tokens_of(const Case& c, const Coordinates& at, int micro_batch);

/// Rows per expert that every rank sends, for one (iteration, layer, micro-batch); the last iteration's are remembered.
class LoadSource {
 public:
  LoadSource(const Case& c, const RoutingSource& routing) : case_(c), grid_(c.grid), routing_(routing) {}
  /// The gate table of the expert group of `rank`.
  const GateTable& table(std::int64_t iteration, int rank, const StageBlock& block, int micro_batch);

 private:
  const Case& case_;
  Grid grid_;
  const RoutingSource& routing_;
  std::int64_t iteration_ = -1;
  std::map<std::array<int, 3>, GateTable> tables_;  ///< by [layer, micro-batch, expert replica]
};

}  // namespace spillway
