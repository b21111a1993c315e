#include "workload/shape/tensors.hpp"

namespace spillway {
namespace {

constexpr std::array<std::string_view, tensor_count> names = {"block_input",
                                                              "attention_norm_output",
                                                              "qkv",
                                                              "attention_output",
                                                              "log_sum_exp",
                                                              "mlp_norm_input",
                                                              "mlp_norm_output",
                                                              "router_input_fp32",
                                                              "router_state",
                                                              "mlp_fc1_output",
                                                              "mlp_fc2_input",
                                                              "row_weight",
                                                              "fc1_input",
                                                              "fc1_output",
                                                              "fc2_input",
                                                              "expert_output",
                                                              "returned_rows",
                                                              "final_norm_output",
                                                              "logits_gradient",
                                                              "block_output",
                                                              "d_residual",
                                                              "d_attention_norm_output",
                                                              "d_qkv",
                                                              "d_attention_output",
                                                              "d_mlp_norm_output",
                                                              "d_router_logits",
                                                              "d_router_weight",
                                                              "d_mlp_fc1_output",
                                                              "d_mlp_fc2_input",
                                                              "d_row_weight",
                                                              "d_fc1_input",
                                                              "d_fc1_output",
                                                              "d_fc2_input",
                                                              "d_expert_output",
                                                              "d_returned_rows",
                                                              "d_sent_rows",
                                                              "d_final_norm_output",
                                                              "sent_rows",
                                                              "received_rows",
                                                              "slot_weight",
                                                              "received_weight",
                                                              "gathered_rows",
                                                              "partial_rows",
                                                              "softmax_terms"};

}  // namespace

std::string_view name(Tensor tensor) { return names[static_cast<std::size_t>(tensor)]; }

bool lives_in_slices(Tensor tensor) {
  switch (tensor) {
    case Tensor::row_weight:
    case Tensor::fc1_input:
    case Tensor::fc1_output:
    case Tensor::fc2_input:
    case Tensor::expert_output:
    case Tensor::d_row_weight:
    case Tensor::d_fc1_input:
    case Tensor::d_fc1_output:
    case Tensor::d_fc2_input:
    case Tensor::d_expert_output:
    case Tensor::sent_rows:
    case Tensor::received_rows:
    case Tensor::slot_weight:
    case Tensor::received_weight:
      return true;
    default:
      return false;
  }
}

Extent extent(Tensor tensor, const BlockContext& c, ExpertRows received) {
  const ModelShape& m = c.shape;
  const std::int64_t e = m.bytes_per_element, h = m.hidden_size, t = c.tensor_parallel;
  const std::int64_t T = c.local_tokens(), S = c.tokens(), N = received.rows;
  const std::int64_t sent = received.sent.value_or(c.routed_rows());
  switch (tensor) {
    case Tensor::block_input:
    case Tensor::block_output:
    case Tensor::attention_norm_output:
    case Tensor::mlp_norm_input:
    case Tensor::mlp_norm_output:
    case Tensor::final_norm_output:
    case Tensor::d_residual:
    case Tensor::d_attention_norm_output:
    case Tensor::d_mlp_norm_output:
    case Tensor::d_final_norm_output:
      return {T, h, e};
    case Tensor::qkv:
    case Tensor::d_qkv:
      return {S, m.qkv_size() / t, e};
    case Tensor::attention_output:
    case Tensor::d_attention_output:
      return {S, m.query_size() / t, e};
    case Tensor::log_sum_exp:
      return {S, m.num_attention_heads / t, 4};
    case Tensor::router_input_fp32:
      return {T, h, 4};
    case Tensor::router_state:
      return {2 * T, m.num_experts, 4};
    case Tensor::d_router_logits:
      return {T, m.num_experts, 4};
    case Tensor::d_router_weight:
      return {T, m.num_experts_per_tok, 4};
    case Tensor::mlp_fc1_output:
    case Tensor::d_mlp_fc1_output:
      return {S, 2 * c.mlp_size / t, e};
    case Tensor::mlp_fc2_input:
    case Tensor::d_mlp_fc2_input:
      return {S, c.mlp_size / t, e};
    case Tensor::row_weight:
    case Tensor::received_weight:
    case Tensor::d_row_weight:
      return {N, 1, 4};
    case Tensor::slot_weight:
      return {sent, 1, 4};
    case Tensor::fc1_input:
    case Tensor::d_fc1_input:
    case Tensor::expert_output:
    case Tensor::d_expert_output:
    case Tensor::received_rows:
      return {N, h, e};
    case Tensor::fc1_output:
    case Tensor::d_fc1_output:
      return {N, 2 * m.moe_intermediate_size, e};
    case Tensor::fc2_input:
    case Tensor::d_fc2_input:
      return {N, m.moe_intermediate_size, e};
    case Tensor::returned_rows:
    case Tensor::d_returned_rows:
    case Tensor::d_sent_rows:
      return {c.routed_rows(), h, e};
    case Tensor::sent_rows:
      return {sent, h, e};
    case Tensor::logits_gradient:
      return {S, m.vocab_size / t, 4};
    case Tensor::gathered_rows:
    case Tensor::partial_rows:
      return {S, h, e};
    case Tensor::softmax_terms:
      return {t * S, 3, 4};
  }
  return {};
}

Category category(Tensor tensor, const BlockContext& c) {
  switch (tensor) {
    case Tensor::router_state:
    case Tensor::fc1_input:
    case Tensor::fc1_output:
    case Tensor::fc2_input:
      return Category::activation_moe;
    case Tensor::returned_rows:
      return c.weights_at_combine() ? Category::activation_moe : Category::workspace;
    case Tensor::row_weight:
    case Tensor::d_row_weight:
    case Tensor::sent_rows:
    case Tensor::received_rows:
    case Tensor::slot_weight:
    case Tensor::received_weight:
    case Tensor::gathered_rows:
    case Tensor::partial_rows:
    case Tensor::softmax_terms:
      return Category::communication;
    case Tensor::expert_output:
      return Category::workspace;
    default:
      return tensor < Tensor::d_residual ? Category::activation_other : Category::workspace;
  }
}

}  // namespace spillway
