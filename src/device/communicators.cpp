#include "device/communicators.hpp"

#include <utility>

namespace spillway::device {

Group::Group(MPI_Comm parent, int color) {
  int parent_rank = 0;
  MPI_Comm_rank(parent, &parent_rank);
  MPI_Comm_split(parent, color, parent_rank, &comm_);
  int size = 0;
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size);
  world_ranks_.resize(size);
  MPI_Allgather(&parent_rank, 1, MPI_INT, world_ranks_.data(), 1, MPI_INT, comm_);
}

Group::~Group() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

Group& Group::operator=(Group&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(rank_, other.rank_);
  std::swap(world_ranks_, other.world_ranks_);
  return *this;
}

Communicators::Communicators(const Grid& grid) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  here = grid.coordinates(rank);
  const int column = here.data * grid.tensor() + here.tensor;
  const int expert_group = here.pipeline * grid.expert_replicas() + here.expert_replica;
  world = Group(MPI_COMM_WORLD, 0);
  pipeline_forward = Group(MPI_COMM_WORLD, column);
  pipeline_backward = Group(MPI_COMM_WORLD, column);
  expert_forward = Group(MPI_COMM_WORLD, expert_group);
  expert_backward = Group(MPI_COMM_WORLD, expert_group);
  expert_recompute = Group(MPI_COMM_WORLD, expert_group);
  const int tensor_group = here.pipeline * grid.data() + here.data;
  tensor_forward = Group(MPI_COMM_WORLD, tensor_group);
  tensor_backward = Group(MPI_COMM_WORLD, tensor_group);
  tensor_recompute = Group(MPI_COMM_WORLD, tensor_group);
  dense_gradients = Group(MPI_COMM_WORLD, here.pipeline * grid.tensor() + here.tensor);
  expert_gradients = Group(MPI_COMM_WORLD, here.pipeline * grid.expert() + here.expert);
  plane_gradients = Group(MPI_COMM_WORLD, here.pipeline);
}

}  // namespace spillway::device
