#pragma once
// Causal attention with grouped key/value heads, blocked: it saves the log-sum-exp of every score row and recomputes the
// scores in backward (Dao et al., FlashAttention). Softmax scale 1/sqrt(head_dim).
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// Rows of a sequence are contiguous. Query head i reads key/value head i / (heads / key_value_heads).
struct AttentionShape {
  std::int64_t sequences, sequence_length, heads, key_value_heads, head_dim;

  std::int64_t rows() const { return sequences * sequence_length; }
  std::int64_t query_size() const { return heads * head_dim; }
  std::int64_t key_value_size() const { return key_value_heads * head_dim; }
  std::int64_t qkv_size() const { return query_size() + 2 * key_value_size(); }
  std::int64_t heads_per_group() const { return heads / key_value_heads; }
};

/// qkv [S, (heads + 2 key_value_heads) * head_dim]: all query heads, then key heads, then value heads;
/// output [S, heads * head_dim]; log_sum_exp [S, heads].
/// Charges 2 s^2 q FLOPs per sequence (s = sequence_length, q = heads * head_dim: the causal half of 4 s^2 q), bytes of
/// all three.
void attention_forward(Stream& stream, const AttentionShape& shape, Matrix<const float> qkv, Matrix<float> output,
                       Matrix<float> log_sum_exp);

/// What forward read and left.
struct AttentionSaved {
  Matrix<const float> qkv, output, log_sum_exp;
};

/// Overwrites d_qkv [S, (heads + 2 key_value_heads) * head_dim]; d_output [S, heads * head_dim].
/// Charges 5 s^2 q FLOPs per sequence (the recomputed scores are executed), bytes of all five.
void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionSaved& saved,
                        Matrix<const float> d_output, Matrix<float> d_qkv);

namespace reference {
void attention_forward(const AttentionShape& shape, Matrix<const double> qkv, Matrix<double> output,
                       Matrix<double> log_sum_exp);
/// Needs no saved output: recomputes what it uses.
void attention_backward(const AttentionShape& shape, Matrix<const double> qkv, Matrix<const double> d_output,
                        Matrix<double> d_qkv);
}  // namespace reference

}  // namespace spillway::device::ops
