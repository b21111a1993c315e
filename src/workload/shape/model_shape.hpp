#pragma once
// The shape of a Mixture-of-Experts transformer and what follows from it: parameters and FLOPs.
#include <cstdint>
#include <string>

#include "base/units.hpp"

namespace spillway {

/// Which tensors a block saves for its backward pass.
enum class Inventory : unsigned char {
  lean,         ///< the seven tensors of the published figure, both norm outputs, router state, log-sum-exp
  standard,     ///< lean and the fp32 copy of the router's input ("default"; no copy exists when elements are fp32)
  with_combine  ///< default and the combine input: router probabilities are applied at combine, not in SwiGLU
};

/// Keys are those of Hugging Face configurations where one exists.
struct ModelShape {
  std::int64_t hidden_size = 64;
  std::int64_t moe_intermediate_size = 32;  ///< hidden size of one routed expert
  std::int64_t num_experts = 8;
  std::int64_t num_experts_per_tok = 2;
  std::int64_t num_hidden_layers = 4;                ///< all transformer layers, dense ones included
  std::int64_t first_k_dense_replace = 0;            ///< leading layers with a dense MLP instead of experts
  std::int64_t intermediate_size = 0;                ///< hidden size of the dense MLP of those layers
  std::int64_t shared_expert_intermediate_size = 0;  ///< hidden size of the shared expert (0: none)
  std::int64_t num_attention_heads = 4;
  std::int64_t num_key_value_heads = 4;
  std::int64_t head_dim = 16;
  std::int64_t vocab_size = 256;
  bool head = true;                    ///< embedding, output head and cross-entropy present
  std::int64_t bytes_per_element = 4;  ///< 4: fp32 (host backend); 2: BF16 accounting
  Inventory inventory = Inventory::lean;

  std::int64_t query_size() const { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const { return num_key_value_heads * head_dim; }
  std::int64_t qkv_size() const { return query_size() + 2 * key_value_size(); }
  bool is_moe_layer(std::int64_t layer) const { return layer >= first_k_dense_replace; }
  std::int64_t moe_layers() const { return num_hidden_layers - first_k_dense_replace; }
  /// Hidden size of the always-active MLP of a layer: dense MLP or shared expert; 0 if the layer has neither.
  std::int64_t mlp_size(std::int64_t layer) const {
    return is_moe_layer(layer) ? shared_expert_intermediate_size : intermediate_size;
  }
  bool operator==(const ModelShape&) const = default;
};

/// Throws InputError for a shape that cannot exist (sizes below 1, k > experts, heads not divisible, ...).
void validate(const ModelShape& shape);

/// Parameters by the sharding they get. Norm gains count with `other`.
struct ParameterCount {
  std::int64_t experts = 0;    ///< gate, up and down of all routed experts, all layers
  std::int64_t other = 0;      ///< attention, norms, routers, shared experts, dense MLPs, all layers
  std::int64_t embedding = 0;  ///< input embedding and output head (with its norm), if present
  std::int64_t total() const { return experts + other + embedding; }
};
ParameterCount count_parameters(const ModelShape& shape);
/// Parameters that one token passes through (k experts instead of all). Both embedding matrices count, as the model
/// names of the published table do.
std::int64_t count_active_parameters(const ModelShape& shape);

/// Model FLOPs of one token, forward and backward: matrix parameters times 6, plus attention.
/// Router, norms, input embedding, recompute, padding and replicas do not count.
struct TokenFlops {
  double causal = 0;
  double noncausal = 0;
};
TokenFlops model_flops_per_token(const ModelShape& shape, std::int64_t sequence_length);

}  // namespace spillway
