#include "run/reference_block.hpp"

#include "base/random.hpp"
#include "device/gemm_reference.hpp"
#include "device/ops/initialize.hpp"
#include "device/ops/rms_norm_reference.hpp"
#include "device/ops/rotary_reference.hpp"
#include "device/ops/router_reference.hpp"
#include "device/ops/swiglu.hpp"

namespace spillway {
namespace {

using device::Matrix;
using device::Transpose;
using device::reference::gemm;
namespace ops = device::ops;
namespace reference = device::ops::reference;

void add(Matrix<const double> x, Matrix<double> sum) {
  for (std::int64_t i = 0; i < x.size(); ++i) sum.data[i] += x.data[i];
}

/// The matrix of one expert among those that lie one below the other, [experts * depth, n].
template <class T>
Matrix<T> matrix_of(Matrix<T> experts, std::int64_t expert, std::int64_t depth) {
  return experts.slice(expert * depth, depth);
}

/// Row r of a [rows, depth] times the matrix of the expert that row chose.
ReferenceMatrix expert_product(Matrix<const double> a, const std::vector<std::int32_t>& expert,
                               const ReferenceParameter& w) {
  ReferenceMatrix out(a.rows, w.value.view().cols);
  for (std::int64_t r = 0; r < a.rows; ++r)
    gemm(a.slice(r, 1), Transpose::no, matrix_of(w.value.view(), expert[r], a.cols), Transpose::no, 0.0,
         out.view().slice(r, 1));
  return out;
}

ReferenceMatrix expert_product_backward(Matrix<const double> a, const std::vector<std::int32_t>& expert,
                                        ReferenceParameter& w, Matrix<const double> d_out) {
  ReferenceMatrix d_a(a.rows, a.cols);
  for (std::int64_t r = 0; r < a.rows; ++r) {
    gemm(a.slice(r, 1), Transpose::yes, d_out.slice(r, 1), Transpose::no, 1.0,
         matrix_of(w.gradient.view(), expert[r], a.cols));
    gemm(d_out.slice(r, 1), Transpose::no, matrix_of<const double>(w.value.view(), expert[r], a.cols), Transpose::yes,
         0.0, d_a.view().slice(r, 1));
  }
  return d_a;
}

/// Every token's row k times, [tokens, h] -> [tokens * k, h].
ReferenceMatrix repeat_rows(Matrix<const double> x, std::int64_t k) {
  ReferenceMatrix rows(x.rows * k, x.cols);
  for (std::int64_t r = 0; r < x.rows * k; ++r)
    for (std::int64_t i = 0; i < x.cols; ++i) rows.view().row(r)[i] = x.row(r / k)[i];
  return rows;
}

/// Adds the k rows of every token to the token's row in sum, [tokens * k, h] -> [tokens, h].
void add_rows(Matrix<const double> rows, std::int64_t k, Matrix<double> sum) {
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t i = 0; i < rows.cols; ++i) sum.row(r / k)[i] += rows.row(r)[i];
}

}  // namespace

ReferenceParameters reference_parameters(BlockKind kind, const BlockContext& whole, std::uint64_t seed, int layer) {
  ReferenceParameters all;
  for (const ParameterShape& shape : parameters(kind, whole)) {
    std::vector<float> initial(static_cast<std::size_t>(shape.size()), 1.0f);
    if (shape.standard_deviation > 0)
      ops::initialize_normal({initial.data(), shape.rows, shape.cols},
                             mix(seed, static_cast<std::uint64_t>(shape.id), std::int64_t{layer} + 1),
                             shape.standard_deviation, 0);
    const ReferenceMatrix zero(shape.rows, shape.cols);
    ReferenceParameter& parameter = all[shape.id] = {zero, zero, zero, zero};
    parameter.value.values().assign(initial.begin(), initial.end());
  }
  return all;
}

ReferenceMatrix reference_product(Matrix<const double> a, const ReferenceParameter& w) {
  ReferenceMatrix out(a.rows, w.value.view().cols);
  gemm(a, Transpose::no, w.value, Transpose::no, 0.0, out);
  return out;
}

ReferenceMatrix reference_product_backward(Matrix<const double> a, ReferenceParameter& w, Matrix<const double> d_out) {
  gemm(a, Transpose::yes, d_out, Transpose::no, 1.0, w.gradient);
  ReferenceMatrix d_a(a.rows, a.cols);
  gemm(d_out, Transpose::no, w.value, Transpose::yes, 0.0, d_a);
  return d_a;
}

ReferenceBlock::ReferenceBlock(const BlockContext& whole, std::uint64_t seed, int layer)
    : shape_(whole.shape),
      parameters_(reference_parameters(whole.shape.is_moe_layer(layer) ? BlockKind::moe : BlockKind::dense, whole, seed,
                                       layer)) {}

ops::AttentionShape ReferenceBlock::attention_shape() const {
  return {tokens_ / sequence_length_, sequence_length_, shape_.num_attention_heads, shape_.num_key_value_heads,
          shape_.head_dim};
}

ops::RotaryShape ReferenceBlock::rotary_shape() const {
  return {sequence_length_, shape_.num_attention_heads, shape_.num_key_value_heads, shape_.head_dim};
}

ReferenceMatrix ReferenceBlock::forward(ReferenceMatrix x, std::int64_t sequence_length,
                                        std::vector<std::int32_t> choices) {
  tokens_ = x.view().rows;
  sequence_length_ = sequence_length;
  choices_ = std::move(choices);
  x_ = std::move(x);
  attention_forward();
  u_ = ReferenceMatrix(tokens_, shape_.hidden_size);
  reference::rms_norm_forward(y_, gain(Parameter::mlp_norm_gain), u_);
  ReferenceMatrix z = y_;
  if (has_mlp()) mlp_forward(z);
  if (is_moe()) experts_forward(z);
  return z;
}

void ReferenceBlock::backward(Matrix<double> d) {
  ReferenceMatrix d_u(tokens_, shape_.hidden_size);
  if (has_mlp()) mlp_backward(d, d_u);
  if (is_moe()) experts_backward(d, d_u);
  reference::rms_norm_backward(y_, gain(Parameter::mlp_norm_gain), d_u, d,
                               parameters_.at(Parameter::mlp_norm_gain).gradient, true);
  attention_backward(d);
}

/// y = x + attention(norm(x)) W_out.
void ReferenceBlock::attention_forward() {
  attention_norm_ = ReferenceMatrix(tokens_, shape_.hidden_size);
  reference::rms_norm_forward(x_, gain(Parameter::attention_norm_gain), attention_norm_);
  qkv_ = reference_product(attention_norm_, parameters_.at(Parameter::qkv_weight));
  reference::rotary_forward(rotary_shape(), qkv_);
  attention_ = ReferenceMatrix(tokens_, shape_.query_size());
  ReferenceMatrix log_sum_exp(tokens_, shape_.num_attention_heads);
  reference::attention_forward(attention_shape(), qkv_, attention_, log_sum_exp);
  y_ = reference_product(attention_, parameters_.at(Parameter::out_weight));
  add(x_, y_);
}

void ReferenceBlock::attention_backward(Matrix<double> d) {
  const ReferenceMatrix d_attention = reference_product_backward(attention_, parameters_.at(Parameter::out_weight), d);
  ReferenceMatrix d_qkv(tokens_, shape_.qkv_size());
  reference::attention_backward(attention_shape(), qkv_, d_attention, d_qkv);
  reference::rotary_backward(rotary_shape(), d_qkv);
  const ReferenceMatrix d_norm =
      reference_product_backward(attention_norm_, parameters_.at(Parameter::qkv_weight), d_qkv);
  reference::rms_norm_backward(x_, gain(Parameter::attention_norm_gain), d_norm, d,
                               parameters_.at(Parameter::attention_norm_gain).gradient, true);
}

/// z += silu(gate) * up W_fc2 with [gate | up] = u W_fc1.
void ReferenceBlock::mlp_forward(Matrix<double> z) {
  mlp_fc1_ = reference_product(u_, parameters_.at(Parameter::mlp_fc1_weight));
  mlp_fc2_input_ = ReferenceMatrix(tokens_, mlp_fc1_.view().cols / 2);
  reference::swiglu_forward(mlp_fc1_, nullptr, mlp_fc2_input_);
  add(reference_product(mlp_fc2_input_, parameters_.at(Parameter::mlp_fc2_weight)), z);
}

void ReferenceBlock::mlp_backward(Matrix<const double> d, Matrix<double> d_u) {
  const ReferenceMatrix d_fc2_input =
      reference_product_backward(mlp_fc2_input_, parameters_.at(Parameter::mlp_fc2_weight), d);
  ReferenceMatrix d_fc1(tokens_, mlp_fc1_.view().cols);
  reference::swiglu_backward(mlp_fc1_, nullptr, d_fc2_input, d_fc1, nullptr);
  add(reference_product_backward(u_, parameters_.at(Parameter::mlp_fc1_weight), d_fc1), d_u);
}

/// z += sum over a token's choices of (weight * silu(gate) * up) W_fc2[e] with [gate | up] = u W_fc1[e].
void ReferenceBlock::experts_forward(Matrix<double> z) {
  const std::int64_t k = shape_.num_experts_per_tok, rows = tokens_ * k;
  router_state_ = ReferenceMatrix(2 * tokens_, shape_.num_experts);
  reference::router_forward(u_, parameters_.at(Parameter::router_weight).value, {choices_.data(), tokens_, k},
                            router_state_);
  row_weight_ = ReferenceMatrix(rows, 1);
  for (std::int64_t r = 0; r < rows; ++r)
    row_weight_.values()[r] = router_state_.view().row(tokens_ + r / k)[choices_[r]];
  fc1_ = expert_product(repeat_rows(u_, k), choices_, parameters_.at(Parameter::fc1_weight));
  fc2_input_ = ReferenceMatrix(rows, shape_.moe_intermediate_size);
  reference::swiglu_forward(fc1_, row_weight_.values().data(), fc2_input_);
  add_rows(expert_product(fc2_input_, choices_, parameters_.at(Parameter::fc2_weight)), k, z);
}

void ReferenceBlock::experts_backward(Matrix<const double> d, Matrix<double> d_u) {
  const std::int64_t k = shape_.num_experts_per_tok, rows = tokens_ * k;
  const ReferenceMatrix d_fc2_input =
      expert_product_backward(fc2_input_, choices_, parameters_.at(Parameter::fc2_weight), repeat_rows(d, k));
  ReferenceMatrix d_fc1(rows, 2 * shape_.moe_intermediate_size), d_weight(tokens_, k);
  reference::swiglu_backward(fc1_, row_weight_.values().data(), d_fc2_input, d_fc1, d_weight.values().data());
  add_rows(expert_product_backward(repeat_rows(u_, k), choices_, parameters_.at(Parameter::fc1_weight), d_fc1), k, d_u);
  ReferenceParameter& router = parameters_.at(Parameter::router_weight);
  ReferenceMatrix d_logits(tokens_, shape_.num_experts);
  reference::router_backward(u_, router.value, {choices_.data(), tokens_, k}, router_state_, d_weight, d_logits, d_u,
                             router.gradient, true);
}

}  // namespace spillway
