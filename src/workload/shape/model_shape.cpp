#include "workload/shape/model_shape.hpp"

#include "base/error.hpp"

namespace spillway {
namespace {

std::int64_t attention_matrices(const ModelShape& s) {
  return s.hidden_size * s.qkv_size() + s.query_size() * s.hidden_size;
}

std::int64_t mlp_matrices(const ModelShape& s, std::int64_t intermediate) { return 3 * s.hidden_size * intermediate; }

/// Matrix parameters of the layers that a token multiplies with, routers left out.
std::int64_t active_layer_matrices(const ModelShape& s) {
  std::int64_t sum = s.num_hidden_layers * attention_matrices(s);
  for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
    sum += mlp_matrices(s, s.mlp_size(layer));
    if (s.is_moe_layer(layer)) sum += s.num_experts_per_tok * mlp_matrices(s, s.moe_intermediate_size);
  }
  return sum;
}

}  // namespace

void validate(const ModelShape& s) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    require_input(value >= least, "{} = {}: must be at least {}", name, value, least);
    require_input(value <= (std::int64_t{1} << 31), "{} = {}: larger than 2^31, surely a slip", name, value);
  };
  at_least("hidden_size", s.hidden_size, 1);
  at_least("num_hidden_layers", s.num_hidden_layers, 1);
  at_least("num_attention_heads", s.num_attention_heads, 1);
  at_least("num_key_value_heads", s.num_key_value_heads, 1);
  at_least("head_dim", s.head_dim, 2);
  at_least("first_k_dense_replace", s.first_k_dense_replace, 0);
  at_least("shared_expert_intermediate_size", s.shared_expert_intermediate_size, 0);
  at_least("intermediate_size", s.intermediate_size, s.first_k_dense_replace > 0 ? 1 : 0);
  at_least("vocab_size", s.vocab_size, 2);
  require_input(s.head_dim % 2 == 0, "head_dim = {}: rotary embedding turns pairs, so it must be even", s.head_dim);
  require_input(s.num_attention_heads % s.num_key_value_heads == 0,
                "num_attention_heads = {} is not a multiple of num_key_value_heads = {}", s.num_attention_heads,
                s.num_key_value_heads);
  require_input(s.first_k_dense_replace <= s.num_hidden_layers,
                "first_k_dense_replace = {} exceeds num_hidden_layers = {}", s.first_k_dense_replace,
                s.num_hidden_layers);
  if (s.moe_layers() > 0) {
    at_least("moe_intermediate_size", s.moe_intermediate_size, 1);
    at_least("num_experts", s.num_experts, 1);
    at_least("num_experts_per_tok", s.num_experts_per_tok, 1);
    require_input(s.num_experts_per_tok <= s.num_experts,
                  "num_experts_per_tok = {} exceeds num_experts = {}: a token chooses distinct experts",
                  s.num_experts_per_tok, s.num_experts);
  }
  require_input(s.bytes_per_element == 4 || s.bytes_per_element == 2, "bytes_per_element = {}: must be 4 or 2",
                s.bytes_per_element);
}

ParameterCount count_parameters(const ModelShape& s) {
  ParameterCount count;
  for (std::int64_t layer = 0; layer < s.num_hidden_layers; ++layer) {
    count.other += attention_matrices(s) + 2 * s.hidden_size + mlp_matrices(s, s.mlp_size(layer));
    if (s.is_moe_layer(layer)) {
      count.other += s.hidden_size * s.num_experts;
      count.experts += s.num_experts * mlp_matrices(s, s.moe_intermediate_size);
    }
  }
  if (s.head) count.embedding = 2 * s.vocab_size * s.hidden_size + s.hidden_size;
  return count;
}

std::int64_t count_active_parameters(const ModelShape& s) {
  const ParameterCount all = count_parameters(s);
  return all.total() - all.experts + s.moe_layers() * s.num_experts_per_tok * mlp_matrices(s, s.moe_intermediate_size);
}

TokenFlops model_flops_per_token(const ModelShape& s, std::int64_t sequence_length) {
  const double matrices = static_cast<double>(active_layer_matrices(s) + (s.head ? s.hidden_size * s.vocab_size : 0));
  const double attention = static_cast<double>(s.num_hidden_layers) * static_cast<double>(sequence_length) *
                           static_cast<double>(s.query_size());
  return {6.0 * matrices + 6.0 * attention, 6.0 * matrices + 12.0 * attention};
}

}  // namespace spillway
