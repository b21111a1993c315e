#pragma once
// One transformer block in plain double precision with every token and every expert at hand: no distribution, no arena,
// no sorting of rows, no recompute. It is composed of the references that stand beside the operators.
#include <map>
#include <vector>

#include "device/matrix.hpp"
#include "device/ops/attention.hpp"
#include "device/ops/rotary.hpp"
#include "workload/shape/parameters.hpp"

namespace spillway {

/// A matrix of doubles that owns its values, initially 0.
class ReferenceMatrix {
 public:
  ReferenceMatrix() = default;
  ReferenceMatrix(std::int64_t rows, std::int64_t cols)
      : values_(static_cast<std::size_t>(rows * cols)), rows_(rows), cols_(cols) {}

  std::vector<double>& values() { return values_; }
  const std::vector<double>& values() const { return values_; }
  device::Matrix<double> view() { return {values_.data(), rows_, cols_}; }
  device::Matrix<const double> view() const { return {values_.data(), rows_, cols_}; }
  operator device::Matrix<double>() { return view(); }
  operator device::Matrix<const double>() const { return view(); }

 private:
  std::vector<double> values_;
  std::int64_t rows_ = 0, cols_ = 0;
};

/// A parameter over its whole layer with what training keeps of it.
struct ReferenceParameter {
  ReferenceMatrix value, gradient, m, v;  ///< m, v: Adam's moments
};
using ReferenceParameters = std::map<Parameter, ReferenceParameter>;

/// The parameters of a block with the program's initial values, gradients and moments 0. Kokkos must be up.
/// `layer` is -1 for the embedding and the head.
ReferenceParameters reference_parameters(BlockKind kind, const BlockContext& whole, std::uint64_t seed, int layer);

/// a w.
ReferenceMatrix reference_product(device::Matrix<const double> a, const ReferenceParameter& w);
/// Adds a^T d_out to the gradient of w and returns the gradient of a, d_out w^T.
ReferenceMatrix reference_product_backward(device::Matrix<const double> a, ReferenceParameter& w,
                                           device::Matrix<const double> d_out);

class ReferenceBlock {
 public:
  /// `whole` is the context of a rank that holds all of the batch and all experts.
  ReferenceBlock(const BlockContext& whole, std::uint64_t seed, int layer);

  ReferenceParameters& parameters() { return parameters_; }
  const ReferenceParameters& parameters() const { return parameters_; }

  /// x [sequences * sequence_length, h] gives the block's output of the same shape; choices [tokens, k] are empty in a
  /// dense layer. Keeps what backward reads.
  ReferenceMatrix forward(ReferenceMatrix x, std::int64_t sequence_length, std::vector<std::int32_t> choices);
  /// Turns the gradient of the output of the last forward into that of its input, adding to the parameters' gradients.
  void backward(device::Matrix<double> d);

 private:
  bool is_moe() const { return parameters_.contains(Parameter::router_weight); }
  bool has_mlp() const { return parameters_.contains(Parameter::mlp_fc1_weight); }
  device::Matrix<const double> gain(Parameter id) const { return parameters_.at(id).value; }
  device::ops::AttentionShape attention_shape() const;
  device::ops::RotaryShape rotary_shape() const;
  void attention_forward();
  void attention_backward(device::Matrix<double> d);
  void mlp_forward(device::Matrix<double> z);
  void mlp_backward(device::Matrix<const double> d, device::Matrix<double> d_u);
  void experts_forward(device::Matrix<double> z);
  void experts_backward(device::Matrix<const double> d, device::Matrix<double> d_u);

  ModelShape shape_;
  ReferenceParameters parameters_;
  std::int64_t tokens_ = 0, sequence_length_ = 0;
  std::vector<std::int32_t> choices_;
  ReferenceMatrix x_, attention_norm_, qkv_, attention_;  ///< block input, then up to the attention's output
  ReferenceMatrix y_, u_;                                 ///< input and output of the second norm
  ReferenceMatrix mlp_fc1_, mlp_fc2_input_;               ///< dense MLP or shared expert
  ReferenceMatrix router_state_;
  ReferenceMatrix row_weight_, fc1_, fc2_input_;  ///< a row per (token, choice), token major
};

}  // namespace spillway
