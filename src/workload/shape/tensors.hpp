#pragma once
// The tensors of one block and one micro-batch on one rank: names, extents, bytes, category.
#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ledger.hpp"
#include "base/units.hpp"
#include "workload/shape/model_shape.hpp"

namespace spillway {

enum class Tensor : unsigned char {
  // made by the forward pass
  block_input,  ///< x: input of the block, also its residual
  attention_norm_output,
  qkv,  ///< after rotary embedding
  attention_output,
  log_sum_exp,        ///< fp32
  mlp_norm_input,     ///< y: x + attention, also a residual
  mlp_norm_output,    ///< u: input of router, dispatch and shared expert
  router_input_fp32,  ///< fp32 copy of u, where the inventory keeps one
  router_state,       ///< fp32: probabilities and dense combine weights
  mlp_fc1_output,     ///< dense MLP or shared expert: gate and up
  mlp_fc2_input,
  row_weight,  ///< fp32: router probability of every received row; travels with the row map
  fc1_input,   ///< rows received, in expert order
  fc1_output,
  fc2_input,
  expert_output,
  returned_rows,  ///< a row per (token, choice), back at the token's rank
  final_norm_output,
  logits_gradient,  ///< fp32: logits, replaced by their gradient as soon as the loss is known
  block_output,     ///< z: the next block's x
  // gradients
  d_residual,  ///< gradient of z; becomes that of y, then of x
  d_attention_norm_output,
  d_qkv,
  d_attention_output,
  d_mlp_norm_output,
  d_router_logits,
  d_router_weight,
  d_mlp_fc1_output,
  d_mlp_fc2_input,
  d_row_weight,
  d_fc1_input,
  d_fc1_output,
  d_fc2_input,
  d_expert_output,
  d_returned_rows,
  d_sent_rows,  ///< of a dispatch in slices: a row per (token, choice), back at the token's rank
  d_final_norm_output,
  // message buffers of one operator
  sent_rows,        ///< rows in the order of their destinations
  received_rows,    ///< rows in the order of their sources
  slot_weight,      ///< fp32: a number per (token, choice)
  received_weight,  ///< fp32: a number per received row, in the order of their sources
  gathered_rows,    ///< of all tokens of the micro-batch: what came over the tensor-parallel group
  partial_rows,     ///< of all tokens: this rank's share of sums over the tensor-parallel group
  softmax_terms     ///< fp32: three numbers per token and part of the vocabulary, see ops/cross_entropy.hpp
};
inline constexpr std::size_t tensor_count = static_cast<std::size_t>(Tensor::softmax_terms) + 1;

/// A set of tensors; small and cheap to copy.
class TensorSet {
 public:
  TensorSet() = default;
  TensorSet(std::initializer_list<Tensor> tensors) {
    for (const Tensor t : tensors) insert(t);
  }
  void insert(Tensor t) { bits_.set(static_cast<std::size_t>(t)); }
  void erase(Tensor t) { bits_.reset(static_cast<std::size_t>(t)); }
  bool contains(Tensor t) const { return bits_.test(static_cast<std::size_t>(t)); }
  static TensorSet all() {
    TensorSet s;
    s.bits_.set();
    return s;
  }
  static TensorSet of_bits(unsigned long long bits) {
    TensorSet s;
    s.bits_ = bits;
    return s;
  }
  unsigned long long bits() const { return bits_.to_ullong(); }
  bool empty() const { return bits_.none(); }
  friend TensorSet operator|(TensorSet a, const TensorSet& b) { return a.bits_ |= b.bits_, a; }
  friend TensorSet operator&(TensorSet a, const TensorSet& b) { return a.bits_ &= b.bits_, a; }
  friend TensorSet operator-(TensorSet a, const TensorSet& b) { return a.bits_ &= ~b.bits_, a; }
  bool operator==(const TensorSet&) const = default;

 private:
  std::bitset<tensor_count> bits_;
};

/// What surrounds a block on one rank; with the model shape it fixes every extent but the received rows.
struct BlockContext {
  ModelShape shape;
  std::int64_t sequence_length = 1;  ///< s
  std::int64_t sequences = 1;        ///< of the micro-batch on this rank, b
  std::int64_t tensor_parallel = 1;  ///< t
  std::int64_t expert_parallel = 1;
  std::int64_t mlp_size = 0;  ///< hidden size of the dense MLP or shared expert of this block; 0: none

  std::int64_t tokens() const { return sequence_length * sequences; }       ///< S
  std::int64_t local_tokens() const { return tokens() / tensor_parallel; }  ///< T = S / t (sequence parallel)
  std::int64_t routed_rows() const { return local_tokens() * shape.num_experts_per_tok; }  ///< k T, rows sent
  std::int64_t local_experts() const { return shape.num_experts / expert_parallel; }
  bool weights_at_combine() const { return shape.inventory == Inventory::with_combine; }
  bool operator==(const BlockContext&) const = default;
};

/// Expert rows of one dispatch, or of one slice of it, on one rank.
struct ExpertRows {
  std::int64_t rows = 0;                  ///< N, received
  std::int64_t active = 0;                ///< local experts with at least one row
  std::optional<std::int64_t> sent = {};  ///< of a slice: rows this rank sends in it; empty: all k T
  bool operator==(const ExpertRows&) const = default;
};

struct Extent {
  std::int64_t rows = 0, cols = 0;
  std::int64_t bytes_per_element = 4;
  std::int64_t elements() const { return rows * cols; }
  Bytes bytes() const { return Bytes(elements() * bytes_per_element); }
};

std::string_view name(Tensor tensor);
/// True for the rows on the experts' side of a dispatch: where it is done in slices, one slice of them lives at a time.
bool lives_in_slices(Tensor tensor);
Extent extent(Tensor tensor, const BlockContext& context, ExpertRows rows);
inline Bytes bytes(Tensor tensor, const BlockContext& context, ExpertRows rows) {
  return extent(tensor, context, rows).bytes();
}
Category category(Tensor tensor, const BlockContext& context);

}  // namespace spillway
