#pragma once
// Rank <-> (pipeline stage, data, tensor) coordinates and expert groups: arithmetic only.
#include "base/error.hpp"

namespace spillway {

/// Sizes of the process grid. Ranks run tensor-fastest, then data, then pipeline (Megatron-LM's order tp-dp-pp).
struct GridOptions {
  int pipeline_parallel = 1;  ///< stages
  int data_parallel = 1;      ///< model replicas (non-expert parameters)
  int tensor_parallel = 1;    ///< ranks that split one token's computation
  int expert_parallel = 1;    ///< ranks of an expert group; divides data_parallel * tensor_parallel
  bool operator==(const GridOptions&) const = default;
};

struct Coordinates {
  int pipeline = 0, data = 0, tensor = 0;
  int expert = 0;          ///< position inside the expert group
  int expert_replica = 0;  ///< which expert group of the stage
  bool operator==(const Coordinates&) const = default;
};

class Grid {
 public:
  explicit Grid(GridOptions options) : options_(options) {}

  int pipeline() const { return options_.pipeline_parallel; }
  int data() const { return options_.data_parallel; }
  int tensor() const { return options_.tensor_parallel; }
  int expert() const { return options_.expert_parallel; }
  /// Ranks of one pipeline stage.
  int plane() const { return data() * tensor(); }
  int ranks() const { return pipeline() * plane(); }
  /// Expert groups per stage = replicas of every expert.
  int expert_replicas() const { return plane() / expert(); }
  /// Data-parallel ranks whose tokens meet in one expert group.
  int data_ranks_per_expert_group() const { return expert() / tensor(); }

  Coordinates coordinates(int rank) const {
    const int in_plane = rank % plane();
    return {rank / plane(), in_plane / tensor(), in_plane % tensor(), in_plane % expert(), in_plane / expert()};
  }
  int rank(int pipeline, int data, int tensor) const {
    return (pipeline * this->data() + data) * this->tensor() + tensor;
  }
  int expert_rank(int pipeline, int expert_replica, int expert) const {
    return pipeline * plane() + expert_replica * this->expert() + expert;
  }

 private:
  GridOptions options_;
};

/// Refuses sizes that are not positive, an expert group that does not tile the stage, and a product that differs from
/// `world` (0: no launcher to compare with).
void validate(const GridOptions& options, int world);

}  // namespace spillway
