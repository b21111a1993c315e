#pragma once
// The training step of the whole model on one rank, serial, in double precision: the distributed program is verified
// against it. Composed of the plain references of the operators; it shares no communication, memory management, row
// sorting or schedule with what it checks. Initial weights and synthetic inputs are the program's, widened to double.
#include <functional>
#include <span>
#include <vector>

#include "device/ops/adam.hpp"
#include "run/reference_block.hpp"

namespace spillway {

/// The global batch of one iteration, sequences in data order.
struct ReferenceBatch {
  std::int64_t iteration = 0;  ///< which noise enters where the head is off
  std::int64_t sequences = 0, sequence_length = 0;
  std::vector<std::int32_t> tokens, labels;  ///< [sequences * sequence_length], below vocab_size; unused with head off
  /// Experts [sequence_length, k] of a sequence in a layer, asked for MoE layers only. The span is read before the next
  /// call.
  std::function<std::span<const std::int32_t>(int layer, std::int64_t sequence)> choices;
  std::int64_t total_tokens() const { return sequences * sequence_length; }
};

class ReferenceModel {
 public:
  /// Throws InputError for a shape that cannot exist. Kokkos must be up.
  ReferenceModel(const ModelShape& shape, std::uint64_t seed);

  /// Forward and backward of the whole batch; gradients are those of this batch alone. Returns the loss: the mean over
  /// tokens of the cross-entropy, or with the head off half the mean square of the last block's output.
  /// Throws InternalError for a batch that does not fit the model.
  double step_gradients(const ReferenceBatch& batch);

  /// One Adam step of every parameter along its gradient; options.step counts from 1.
  void adam(const device::ops::AdamOptions& options);

  /// Row-major over the whole layer, experts one below the other. Layer -1: embedding, final norm gain, head weight.
  /// Throws InternalError for a parameter the layer does not have.
  std::span<const double> gradient(Parameter id, int layer) const;
  std::span<const double> value(Parameter id, int layer) const;
  std::span<double> value(Parameter id, int layer);

 private:
  template <class Model>
  static auto& find(Model& model, Parameter id, int layer);
  template <class Body>
  void for_each_parameter(const Body& body);
  void check(const ReferenceBatch& batch) const;
  ReferenceMatrix input(const ReferenceBatch& batch) const;
  std::vector<std::int32_t> layer_choices(const ReferenceBatch& batch, int layer) const;
  double loss_and_gradient(const ReferenceMatrix& z, const ReferenceBatch& batch, device::Matrix<double> d_z);

  ModelShape shape_;
  std::uint64_t seed_;
  ReferenceParameters ends_;  ///< embedding and head
  std::vector<ReferenceBlock> blocks_;
};

}  // namespace spillway
