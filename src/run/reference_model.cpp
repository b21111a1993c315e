#include "run/reference_model.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "device/ops/adam_reference.hpp"
#include "device/ops/cross_entropy_reference.hpp"
#include "device/ops/embedding_reference.hpp"
#include "device/ops/initialize.hpp"
#include "device/ops/rms_norm_reference.hpp"
#include "workload/routing/tokens.hpp"

namespace spillway {
namespace {

using device::Matrix;
namespace reference = device::ops::reference;

BlockContext whole_context(const ModelShape& shape, std::int64_t mlp_size) {
  BlockContext context;
  context.shape = shape;
  context.mlp_size = mlp_size;
  return context;
}

/// Experts [s, k] of one sequence: in range, and distinct for every token.
void check_choices(std::span<const std::int32_t> experts, const ModelShape& shape) {
  const auto k = static_cast<std::size_t>(shape.num_experts_per_tok);
  for (std::size_t first = 0; first < experts.size(); first += k) {
    const std::set<std::int32_t> distinct(experts.begin() + first, experts.begin() + first + k);
    ensure(distinct.size() == k && *distinct.begin() >= 0 && *distinct.rbegin() < shape.num_experts,
           "token {} chose experts {} .. {}, {} distinct ones: must be {} below {}", first / k, *distinct.begin(),
           *distinct.rbegin(), distinct.size(), k, shape.num_experts);
  }
}

}  // namespace

ReferenceModel::ReferenceModel(const ModelShape& shape, std::uint64_t seed) : shape_(shape), seed_(seed) {
  validate(shape);
  if (shape.head) {
    ends_ = reference_parameters(BlockKind::embedding, whole_context(shape, 0), seed, -1);
    ends_.merge(reference_parameters(BlockKind::head, whole_context(shape, 0), seed, -1));
  }
  for (int layer = 0; layer < shape.num_hidden_layers; ++layer)
    blocks_.emplace_back(whole_context(shape, shape.mlp_size(layer)), seed, layer);
}

double ReferenceModel::step_gradients(const ReferenceBatch& batch) {
  check(batch);
  for_each_parameter([](ReferenceParameter& p) { std::ranges::fill(p.gradient.values(), 0.0); });
  ReferenceMatrix z = input(batch);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer)
    z = blocks_[layer].forward(std::move(z), batch.sequence_length, layer_choices(batch, static_cast<int>(layer)));
  ReferenceMatrix d(batch.total_tokens(), shape_.hidden_size);
  const double loss = loss_and_gradient(z, batch, d);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) block->backward(d);
  if (shape_.head) reference::embedding_backward(batch.tokens.data(), d, ends_.at(Parameter::embedding).gradient);
  return loss;
}

void ReferenceModel::adam(const device::ops::AdamOptions& options) {
  for_each_parameter([&](ReferenceParameter& p) { reference::adam_step(options, p.value, p.gradient, p.m, p.v); });
}

template <class Model>
auto& ReferenceModel::find(Model& model, Parameter id, int layer) {
  ensure(layer >= -1 && layer < std::ssize(model.blocks_), "layer {} of a reference model with {} layers", layer,
         model.blocks_.size());
  auto& all = layer < 0 ? model.ends_ : model.blocks_[static_cast<std::size_t>(layer)].parameters();
  const auto found = all.find(id);
  ensure(found != all.end(), "layer {} of the reference model has no {}", layer, name(id));
  return found->second;
}

std::span<const double> ReferenceModel::gradient(Parameter id, int layer) const {
  return find(*this, id, layer).gradient.values();
}
std::span<const double> ReferenceModel::value(Parameter id, int layer) const {
  return find(*this, id, layer).value.values();
}
std::span<double> ReferenceModel::value(Parameter id, int layer) { return find(*this, id, layer).value.values(); }

template <class Body>
void ReferenceModel::for_each_parameter(const Body& body) {
  for (auto& [id, parameter] : ends_) body(parameter);
  for (ReferenceBlock& block : blocks_)
    for (auto& [id, parameter] : block.parameters()) body(parameter);
}

void ReferenceModel::check(const ReferenceBatch& batch) const {
  ensure(batch.sequences > 0 && batch.sequence_length > 0, "a reference batch of {} sequences of {} tokens",
         batch.sequences, batch.sequence_length);
  ensure(shape_.moe_layers() == 0 || batch.choices, "a reference batch without experts to choose");
  if (!shape_.head) return;
  for (const auto* ids : {&batch.tokens, &batch.labels}) {
    ensure(std::ssize(*ids) == batch.total_tokens(), "{} token or label ids for {} sequences of {} tokens", ids->size(),
           batch.sequences, batch.sequence_length);
    const auto [least, largest] = std::ranges::minmax(*ids);
    ensure(least >= 0 && largest < shape_.vocab_size, "token or label ids {} .. {} with a vocabulary of {}", least,
           largest, shape_.vocab_size);
  }
}

/// The first block's input [tokens, h]: embeddings, or noise that belongs to (seed, iteration, sequence).
ReferenceMatrix ReferenceModel::input(const ReferenceBatch& batch) const {
  ReferenceMatrix x(batch.total_tokens(), shape_.hidden_size);
  if (shape_.head) {
    reference::embedding_forward(batch.tokens.data(), ends_.at(Parameter::embedding).value, x);
    return x;
  }
  std::vector<float> noise(static_cast<std::size_t>(batch.sequence_length * shape_.hidden_size));
  for (std::int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
    device::ops::initialize_normal({noise.data(), batch.sequence_length, shape_.hidden_size},
                                   synthetic_input_key(seed_, batch.iteration, sequence), 1.0, 0);
    std::ranges::copy(noise, x.view().row(sequence * batch.sequence_length));
  }
  return x;
}

/// [tokens, k], empty for a dense layer.
std::vector<std::int32_t> ReferenceModel::layer_choices(const ReferenceBatch& batch, int layer) const {
  std::vector<std::int32_t> all;
  if (!shape_.is_moe_layer(layer)) return all;
  for (std::int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
    const auto experts = batch.choices(layer, sequence);
    ensure(std::ssize(experts) == batch.sequence_length * shape_.num_experts_per_tok,
           "sequence {} has {} choices in layer {}: must be {} tokens times {}", sequence, experts.size(), layer,
           batch.sequence_length, shape_.num_experts_per_tok);
    check_choices(experts, shape_);
    all.insert(all.end(), experts.begin(), experts.end());
  }
  return all;
}

/// Returns the loss of the last block's output z and overwrites d_z with its gradient.
double ReferenceModel::loss_and_gradient(const ReferenceMatrix& z, const ReferenceBatch& batch, Matrix<double> d_z) {
  const double mean_over_tokens = 1.0 / static_cast<double>(batch.total_tokens());
  if (!shape_.head) {
    const double scale = mean_over_tokens / static_cast<double>(shape_.hidden_size);
    reference::square_loss_backward(z, scale, d_z);
    return reference::square_loss(z, scale);
  }
  ReferenceParameter& gain = ends_.at(Parameter::final_norm_gain);
  ReferenceMatrix norm(batch.total_tokens(), shape_.hidden_size);
  reference::rms_norm_forward(z, gain.value, norm);
  ReferenceMatrix logits = reference_product(norm, ends_.at(Parameter::head_weight));
  const double loss = reference::cross_entropy(logits, batch.labels.data(), mean_over_tokens);  // logits: now gradients
  const ReferenceMatrix d_norm = reference_product_backward(norm, ends_.at(Parameter::head_weight), logits);
  reference::rms_norm_backward(z, gain.value, d_norm, d_z, gain.gradient, false);
  return loss;
}

}  // namespace spillway
