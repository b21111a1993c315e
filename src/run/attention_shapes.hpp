#pragma once
// The heads of one rank.
#include "device/ops/attention.hpp"
#include "device/ops/rotary.hpp"
#include "workload/shape/tensors.hpp"

namespace spillway {

inline device::ops::AttentionShape attention_shape(const BlockContext& c) {
  const ModelShape& m = c.shape;
  return {c.sequences, c.sequence_length, m.num_attention_heads / c.tensor_parallel,
          m.num_key_value_heads / c.tensor_parallel, m.head_dim};
}

inline device::ops::RotaryShape rotary_shape(const BlockContext& c) {
  const ModelShape& m = c.shape;
  return {c.sequence_length, m.num_attention_heads / c.tensor_parallel, m.num_key_value_heads / c.tensor_parallel,
          m.head_dim};
}

}  // namespace spillway
