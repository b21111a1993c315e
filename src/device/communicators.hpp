#pragma once
// Communicators of one rank: one per axis of the grid and class of traffic, so that no two classes can be confused.
#include <mpi.h>

#include <vector>

#include "grid/grid.hpp"

namespace spillway::device {

/// A communicator and the world ranks of its members. Owns the communicator.
class Group {
 public:
  Group() = default;
  /// Collective over `parent`: members with equal color, ordered by their rank there.
  Group(MPI_Comm parent, int color);
  ~Group();
  Group(Group&& other) noexcept { *this = std::move(other); }
  Group& operator=(Group&& other) noexcept;

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::vector<int> world_ranks_;
};

struct Communicators {
  /// Collective over MPI_COMM_WORLD, whose size must be grid.ranks().
  explicit Communicators(const Grid& grid);

  Coordinates here;
  Group world;              ///< control: agreement on events, checksums, results
  Group pipeline_forward;   ///< the stages of one column, activations
  Group pipeline_backward;  ///< the same ranks, gradients
  Group expert_forward;     ///< expert group: gate table, dispatch and combine
  Group expert_backward;    ///< expert group: their gradients
  Group expert_recompute;   ///< expert group: dispatch repeated in backward
  Group tensor_forward;     ///< tensor-parallel group: rows gathered and sums exchanged
  Group tensor_backward;    ///< tensor-parallel group: their gradients
  Group tensor_recompute;   ///< tensor-parallel group: what is repeated in backward
  Group dense_gradients;    ///< ranks that hold the same part of the stage's non-expert matrices
  Group expert_gradients;   ///< ranks that hold the same experts
  Group plane_gradients;    ///< all ranks of the stage: what tensor-parallel ranks hold copies of
};

}  // namespace spillway::device
