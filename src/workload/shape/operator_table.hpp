#pragma once
// The operators of a block: what each reads, writes, multiplies and sends. The executor allocates from this table, the
// cost model predicts from it, the books close with it.
#include <span>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "workload/shape/tensors.hpp"

namespace spillway {

enum class BlockKind : unsigned char {
  embedding,        ///< token embedding
  synthetic_input,  ///< normal noise instead of an embedding (head off)
  dense,            ///< attention and a dense MLP
  moe,              ///< attention and routed experts, with a shared expert where the model has one
  head,             ///< final norm, output projection, cross-entropy
  square_loss       ///< half the mean square of the last block's output (head off)
};

enum class Op : unsigned char {
  embedding,
  synthetic_input,
  attention_norm,
  qkv,
  attention_core,
  out_projection,
  mlp_norm,
  router,
  mlp_fc1,
  mlp_swiglu,
  mlp_fc2,
  gate,
  sum_slices,  ///< backward only: adds up the gradients of the rows that a dispatch in slices sent
  dispatch,
  fc1,
  swiglu,
  fc2,
  combine,
  unpermute,
  final_norm,
  head,
  square_loss
};
inline constexpr std::size_t op_count = static_cast<std::size_t>(Op::square_loss) + 1;

enum class PassKind : unsigned char { forward, backward };

/// Group that an operator's messages span. An operator of a tensor-parallel group (Megatron-LM, sequence parallelism)
/// gathers the rows of all tokens before it computes, or exchanges partial sums after it has computed, or both.
enum class Collective : unsigned char { none, gate_table, expert_all_to_all, tensor_parallel };

/// One direction of an operator. A tensor in `writes` that already lives is accumulated into (or written again with the
/// same values, when the forward pass is repeated).
struct Pass {
  std::vector<Tensor> reads, writes, scratch;
};

struct OperatorRow {
  Op op;
  Pass forward, backward;
  Collective collective = Collective::none;
};

/// Work of one operator on one rank: FLOPs of matrix products, bytes moved through device memory (every argument of a
/// kernel once, an accumulated output twice), and bytes received from the group (own share included). In order: the
/// message that gathers, the computation, the message that exchanges, what is done with its rows.
struct OperatorWork {
  Flops flops{};
  Bytes bytes{};
  Bytes received{};
  Bytes bytes_after_message{};
  Bytes gathered{};  ///< received before the computation
  bool operator==(const OperatorWork&) const = default;
};

std::string_view name(Op op);
std::string_view name(BlockKind kind);

/// True for the operators that a dispatch in slices repeats for every slice: dispatch to combine.
bool runs_in_slices(Op op);

/// Operators of a block in forward order; with `sliced`, of a block whose dispatch is done in slices: whole tensors stay
/// on the tokens' side only, and rows pass to and from them through message buffers.
std::vector<OperatorRow> operator_table(BlockKind kind, const BlockContext& context, bool sliced = false);

/// `fresh` tells, for the operators that accumulate into a gradient shared with others, whether they write it first.
OperatorWork operator_work(Op op, PassKind pass, const BlockContext& context, ExpertRows rows, bool fresh);

/// The part of an operator's FLOPs that model FLOPs utilisation counts by the usual convention: products once forward
/// and twice backward, attention by the causal or the full convention, no router.
Flops model_flops(Op op, PassKind pass, const BlockContext& context, ExpertRows rows, bool causal);

/// Bytes a block's backward pass needs under "keep everything", in the categories of activations: the saved inventory.
Bytes saved_activation_bytes(BlockKind kind, const BlockContext& context, ExpertRows rows);

}  // namespace spillway
