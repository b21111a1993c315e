#pragma once
// Layers and budgets that several tests of the planner share.
#include "one_block.hpp"
#include "plan/policy/greedy.hpp"

namespace spillway {

/// A layer of 423B-A30B on the published grid (EP 64, TP 2), BF16, with a shared expert: its input u feeds the router,
/// in fp32, and the shared expert.
inline BlockContext published_layer() {
  BlockContext c;
  c.shape.hidden_size = 8192;
  c.shape.moe_intermediate_size = 4096;
  c.shape.num_experts = 128;
  c.shape.num_experts_per_tok = 6;
  c.shape.num_attention_heads = c.shape.num_key_value_heads = 64;
  c.shape.head_dim = 128;
  c.shape.bytes_per_element = 2;
  c.shape.inventory = Inventory::standard;
  c.sequence_length = 4096;
  c.tensor_parallel = 2;
  c.expert_parallel = 64;
  c.mlp_size = c.shape.shared_expert_intermediate_size = 4096;
  return c;
}

/// A dense layer small enough to work through by hand: h 8, 2 heads of 4, 4 tokens, MLP 16, fp32.
/// Bytes: x, both norm outputs, y, attention output 128 each, qkv 384, log-sum-exp 32, fc1 output 512, fc2 input 256;
/// 1824 altogether.
inline BlockContext small_dense_layer() {
  BlockContext c;
  c.shape.hidden_size = 8;
  c.shape.num_attention_heads = c.shape.num_key_value_heads = 2;
  c.shape.head_dim = 4;
  c.sequence_length = 4;
  c.mlp_size = c.shape.intermediate_size = 16;
  return c;
}

inline Budget unlimited() { return {plenty, plenty, plenty, plenty, plenty}; }
inline Budget held_at_most(std::int64_t bytes) {
  Budget b = unlimited();
  b.held = Bytes(bytes);
  return b;
}

}  // namespace spillway
