#pragma once
// The parameters of one rank in flat groups (dense, expert, plane): values, gradients and sharded Adam state in the arena.
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "device/arena.hpp"
#include "device/communicators.hpp"
#include "device/matrix.hpp"
#include "device/ops/adam.hpp"
#include "plan/program/buckets.hpp"

namespace spillway {

/// Values and optimizer state of one rank, outside the arena.
struct Snapshot {
  struct Group {
    std::vector<float> values, first_moment, second_moment;
  };
  std::array<Group, parameter_group_count> groups;
  std::int64_t completed_iterations = 0;
};

/// One group's flat buffers, bucket after bucket; of each bucket rank i of those that share it owns shard i.
struct GroupBuffers {
  GroupElements elements;
  float* values = nullptr;         ///< [padded]
  float* gradients = nullptr;      ///< [padded]
  float* first_moment = nullptr;   ///< [shard]
  float* second_moment = nullptr;  ///< [shard]
  float* received = nullptr;       ///< pieces of gradients from all that share them; null where not held all the time
};

class ParameterStore {
 public:
  /// Allocates in `arena`; throws InputError when the cap does not even hold the static memory.
  ParameterStore(device::Arena& arena, std::span<const StageBlock> blocks, const Grid& grid,
                 const RankElements& elements);

  device::Matrix<float> value(int block, Parameter parameter) const {
    return view(block, parameter, &GroupBuffers::values);
  }
  device::Matrix<float> gradient(int block, Parameter parameter) const {
    return view(block, parameter, &GroupBuffers::gradients);
  }
  GroupBuffers& group(ParameterGroup group) { return groups_[static_cast<int>(group)]; }

  /// One matrix in its group's flat buffers.
  struct Place {
    ParameterShape shape;
    std::int64_t offset = 0;
  };
  /// By (block, parameter).
  const std::map<std::pair<int, Parameter>, Place>& places() const { return places_; }

  /// Index in the whole matrix of the layer of element i of this rank's part.
  static std::int64_t whole_index(const ParameterShape& shape, const Grid& grid, const Coordinates& here,
                                  std::int64_t i);

  /// Initial values: a function of (seed, parameter, layer, global element index); moments zero.
  void initialize(std::uint64_t seed, const Coordinates& here);
  void save(Snapshot& snapshot) const;
  void restore(const Snapshot& snapshot);

 private:
  device::Matrix<float> view(int block, Parameter parameter, float* GroupBuffers::*buffer) const;

  std::array<GroupBuffers, parameter_group_count> groups_;
  std::map<std::pair<int, Parameter>, Place> places_;
  std::vector<StageBlock> blocks_;
  Grid grid_;
};

}  // namespace spillway
