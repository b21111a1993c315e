#pragma once
// The parameter matrices of a block on one rank: one source for allocation, initialisation and static memory.
#include <string_view>
#include <vector>

#include "workload/shape/operator_table.hpp"

namespace spillway {

enum class Parameter : unsigned char {
  embedding,
  attention_norm_gain,
  qkv_weight,
  out_weight,
  mlp_norm_gain,
  router_weight,
  mlp_fc1_weight,
  mlp_fc2_weight,
  fc1_weight,
  fc2_weight,
  final_norm_gain,
  head_weight
};

/// Who holds copies of a parameter, hence over whom its gradient is summed and its optimizer state sharded.
enum class ParameterGroup : unsigned char {
  dense,   ///< the ranks of the stage with the same tensor coordinate
  expert,  ///< the ranks that hold the same experts
  plane    ///< all ranks of the stage: tensor-parallel ranks hold copies, but use them on different tokens
};
inline constexpr int parameter_group_count = 3;

/// How a matrix of a layer lies on the ranks that share it: whole on each, or a part of its rows or of its columns.
enum class Division : unsigned char { none, rows, columns };

/// One matrix of this rank. Experts lie one below the other: fc1 [local experts * h, 2m], fc2 [local experts * m, h].
struct ParameterShape {
  Parameter id;
  ParameterGroup group;
  std::int64_t rows = 0, cols = 0;
  double standard_deviation = 0;  ///< of the initial values; 0: a norm gain, initially 1
  Division division = Division::none;
  /// Widths of this rank's parts of the bands of columns that are divided each on its own: query, key and value heads,
  /// gate and up. They add up to cols.
  std::vector<std::int64_t> bands = {};
  std::int64_t size() const { return rows * cols; }
};

std::string_view name(Parameter parameter);
std::vector<ParameterShape> parameters(BlockKind kind, const BlockContext& context);

/// Index in the whole matrix of the layer, row-major, of element i of the part that the `part`-th of `parts` ranks
/// holds: tensor-parallel ranks, or members of the expert group.
std::int64_t whole_index(const ParameterShape& shape, std::int64_t part, std::int64_t parts, std::int64_t i);

/// Bytes of one rank that do not depend on the load, from its number of parameters per group and the number of ranks
/// that share each group's optimizer state.
struct StaticBytes {
  Bytes parameters, gradients, optimizer;
  Bytes total() const { return parameters + gradients + optimizer; }
};
/// Gradients are fp32. Adam keeps two fp32 moments, and an fp32 master copy where elements have 2 bytes; both sharded.
StaticBytes static_bytes(std::int64_t elements, std::int64_t bytes_per_element, std::int64_t shards);
/// Elements of one shard: equal shares, the last one padded.
constexpr std::int64_t shard_elements(std::int64_t elements, std::int64_t shards) {
  return (elements + shards - 1) / shards;
}

}  // namespace spillway
