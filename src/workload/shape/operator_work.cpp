// What every operator multiplies, moves and receives. The device calls charge the same, and a test compares the two for
// every operator.
#include <algorithm>

#include "base/error.hpp"
#include "workload/shape/operator_table.hpp"

namespace spillway {
namespace {

/// Extents that the formulas share, and bytes of tensors by name.
struct Sizes {
  Sizes(const BlockContext& context, ExpertRows received) : c(context), rows(received) {}

  std::int64_t of(Tensor tensor) const { return bytes(tensor, c, rows).value; }
  /// A weight matrix (elements) and its fp32 gradient, read and written.
  std::int64_t weight(std::int64_t elements) const { return elements * e; }
  static std::int64_t gradient(std::int64_t elements) { return 2 * 4 * elements; }

  const BlockContext& c;
  ExpertRows rows;
  std::int64_t e = c.shape.bytes_per_element, h = c.shape.hidden_size, t = c.tensor_parallel;
  std::int64_t S = c.tokens(), T = c.local_tokens(), kT = c.routed_rows(), N = rows.rows;
  std::int64_t local = T * h * e, all = S * h * e;  ///< rows of this rank's tokens, and of all of the micro-batch
  bool divided = t > 1;
  bool sliced = rows.sent.has_value();
  std::int64_t sent = rows.sent.value_or(kT);
  std::int64_t m = c.shape.moe_intermediate_size, E = c.shape.num_experts;
  bool alone = c.expert_parallel == 1, reorders = !alone && c.local_experts() > 1, weighted = c.weights_at_combine();
};

OperatorWork work(std::int64_t flops, std::int64_t moved) { return {Flops(flops), Bytes(moved), {}, {}, {}}; }

OperatorWork norm_backward(const Sizes& z, Tensor x, Tensor d_out, bool accumulates) {
  return work(0, z.of(x) + z.weight(z.h) + z.of(d_out) + (accumulates ? 2 : 1) * z.of(Tensor::d_residual) +
                     z.gradient(z.h));
}

/// The rows of all tokens, from the ranks of the tensor-parallel group.
OperatorWork after_gathering(const Sizes& z, OperatorWork w) {
  if (z.divided) w.gathered = Bytes(z.all);
  return w;
}

/// Partial sums [S, h] go to the ranks of their tokens, which add them up in rank order: to what is there, or to nothing.
OperatorWork before_summing(const Sizes& z, OperatorWork w, bool fresh) {
  if (!z.divided) return w;
  w.received = Bytes(z.all);
  w.bytes_after_message = Bytes(3 * z.all - (fresh ? z.local : 0));
  return w;
}

/// The same, added to a copy of the residual.
OperatorWork before_adding(const Sizes& z, OperatorWork w, bool copies_residual) {
  w = before_summing(z, w, false);
  w.bytes_after_message += Bytes(copies_residual ? 2 * z.local : 0);
  return w;
}

/// Gradients of y = x W where a tensor-parallel rank has some columns of W: dx = dy W^T and dW += x^T dy. dx, of all
/// tokens, is a partial sum.
OperatorWork column_backward(const Sizes& z, Tensor dy, std::int64_t weights, bool fresh) {
  const OperatorWork products = work(4 * z.S * weights, 2 * z.of(dy) + z.weight(weights) + z.gradient(weights) +
                                                            (z.divided || fresh ? 2 : 3) * z.all);
  return before_summing(z, after_gathering(z, products), fresh);
}

/// The same where it has some rows of W: dy is gathered, dx is complete.
OperatorWork row_backward(const Sizes& z, Tensor x, Tensor dx, std::int64_t weights) {
  return after_gathering(z, work(4 * z.S * weights,
                                 2 * z.all + z.weight(weights) + z.gradient(weights) + z.of(dx) + z.of(x)));
}

/// dx and dW of local experts one below the other; experts without rows cost nothing.
OperatorWork grouped_backward(const Sizes& z, Tensor x, Tensor dy, Tensor dx, std::int64_t weights) {
  return work(4 * z.N * weights, z.of(dy) + z.rows.active * z.weight(weights) + z.of(dx) + z.of(x) + z.of(dy) +
                                     z.rows.active * z.gradient(weights));
}

std::int64_t rotary_bytes(const Sizes& z) {
  return 2 * z.S * (z.c.shape.query_size() + z.c.shape.key_value_size()) / z.t * z.e;
}

/// Rows of a slice put to their places among all rows of the tokens' side, or taken from there.
std::int64_t to_or_from_whole(const Sizes& z) { return 4 * z.sent + 2 * z.sent * z.h * z.e; }

OperatorWork dispatch_forward(const Sizes& z) {
  OperatorWork w;
  const std::int64_t rows = z.sent * z.h * z.e;
  w.bytes = Bytes(4 * z.sent + std::min(z.of(Tensor::mlp_norm_output), rows) + rows);
  if (!z.weighted) w.bytes += Bytes(12 * z.sent);
  if (!z.alone) w.received = Bytes(z.of(Tensor::fc1_input) + (z.weighted ? 0 : 4 * z.N));
  if (z.reorders) w.bytes_after_message = Bytes(4 * z.N + 2 * z.of(Tensor::fc1_input) + (z.weighted ? 0 : 12 * z.N));
  return w;
}

OperatorWork dispatch_backward(const Sizes& z, bool fresh) {
  OperatorWork w;
  if (z.reorders) w.bytes = Bytes(4 * z.N + 2 * z.of(Tensor::d_fc1_input) + (z.weighted ? 0 : 12 * z.N));
  if (!z.alone) w.received = Bytes(z.sent * z.h * z.e + (z.weighted ? 0 : 4 * z.sent));
  if (z.sliced) {
    w.bytes_after_message = Bytes(to_or_from_whole(z) + (z.weighted ? 0 : 12 * z.sent));
    return w;
  }
  w.bytes_after_message = Bytes(z.kT * z.h * z.e + 4 * z.kT + (fresh ? 1 : 2) * z.of(Tensor::d_mlp_norm_output) +
                                (z.weighted ? 0 : 12 * z.kT));
  return w;
}

OperatorWork combine(const Sizes& z, PassKind pass) {
  OperatorWork w;
  const Bytes reordering(4 * z.N + 2 * z.of(Tensor::expert_output));
  const Bytes whole(z.sliced ? to_or_from_whole(z) : 0);
  if (z.alone) {
    w.bytes = z.sliced ? whole : Bytes(2 * z.of(Tensor::expert_output));
  } else if (pass == PassKind::forward) {
    w.received = Bytes(z.sent * z.h * z.e);
    if (z.reorders) w.bytes = reordering;
    w.bytes_after_message = whole;
  } else {
    w.bytes = whole;
    w.received = Bytes(z.of(Tensor::d_expert_output));
    if (z.reorders) w.bytes_after_message = reordering;
  }
  return w;
}

OperatorWork unpermute_forward(const Sizes& z, bool fresh) {
  const std::int64_t out = z.of(Tensor::block_output);
  return work(0,
              (fresh ? 2 * out : 0) + z.of(Tensor::returned_rows) + 4 * z.kT + 2 * out + (z.weighted ? 16 * z.kT : 0));
}

OperatorWork unpermute_backward(const Sizes& z) {
  const std::int64_t rows = z.of(Tensor::d_returned_rows), d_out = z.of(Tensor::d_residual);
  if (z.weighted) return work(0, 12 * z.kT + 2 * rows + d_out + 12 * z.kT);
  return work(0, 4 * z.kT + d_out + rows);
}

/// The residual plus x W, where a tensor-parallel rank has some rows of W and the output is that of its tokens.
OperatorWork row_forward(const Sizes& z, Tensor x, std::int64_t weights, bool copies_residual) {
  const std::int64_t product = z.of(x) + z.weight(weights);
  if (z.divided) return before_adding(z, work(2 * z.S * weights, product + z.all), copies_residual);
  return work(2 * z.S * weights, product + (copies_residual ? 4 : 2) * z.all);
}

/// Logits and their loss. Over a divided vocabulary every rank contributes three numbers per token.
OperatorWork head_forward(const Sizes& z, std::int64_t weights) {
  const std::int64_t logits = z.of(Tensor::logits_gradient), labels = 4 * z.S, terms = z.of(Tensor::softmax_terms);
  OperatorWork w = work(2 * z.S * weights, z.all + z.weight(weights) + 3 * logits + labels);
  if (!z.divided) return w;
  w.bytes += Bytes(terms / z.t);
  w.received = Bytes(terms);
  w.bytes_after_message = Bytes(2 * logits + labels + terms);
  return after_gathering(z, w);
}

OperatorWork forward_work(Op op, const Sizes& z, bool fresh) {
  const ModelShape& shape = z.c.shape;
  const std::int64_t qkv = z.h * shape.qkv_size() / z.t, out = z.h * shape.query_size() / z.t;
  const std::int64_t mlp = z.h * z.c.mlp_size / z.t, vocabulary = z.h * shape.vocab_size / z.t;
  switch (op) {
    case Op::gate:
    case Op::sum_slices:
    case Op::synthetic_input:
      return {};
    case Op::embedding:
      return before_summing(z, work(0, 4 * z.S + 2 * z.all), true);
    case Op::attention_norm:
      return work(0, z.of(Tensor::block_input) + z.weight(z.h) + z.of(Tensor::attention_norm_output));
    case Op::qkv:
      return after_gathering(z, work(2 * z.S * qkv, z.all + z.weight(qkv) + z.of(Tensor::qkv) + rotary_bytes(z)));
    case Op::attention_core:
      return work(2 * z.S * z.c.sequence_length * shape.query_size() / z.t,
                  z.of(Tensor::qkv) + z.of(Tensor::attention_output) + z.of(Tensor::log_sum_exp));
    case Op::out_projection:
      return row_forward(z, Tensor::attention_output, out, true);
    case Op::mlp_norm:
      return work(0, z.of(Tensor::mlp_norm_input) + z.weight(z.h) + z.of(Tensor::mlp_norm_output));
    case Op::router:
      return work(2 * z.T * z.h * z.E, z.of(Tensor::mlp_norm_output) + z.weight(z.h * z.E) + 4 * z.kT + 16 * z.T * z.E);
    case Op::mlp_fc1:
      return after_gathering(z, work(4 * z.S * mlp, z.all + 2 * z.weight(mlp) + z.of(Tensor::mlp_fc1_output)));
    case Op::mlp_swiglu:
      return work(0, z.of(Tensor::mlp_fc1_output) + z.of(Tensor::mlp_fc2_input));
    case Op::mlp_fc2:
      return row_forward(z, Tensor::mlp_fc2_input, mlp, fresh);
    case Op::dispatch:
      return dispatch_forward(z);
    case Op::fc1:
      return work(4 * z.N * z.h * z.m,
                  z.of(Tensor::fc1_input) + z.of(Tensor::fc1_output) + z.rows.active * z.weight(2 * z.h * z.m));
    case Op::swiglu:
      return work(0, z.of(Tensor::fc1_output) + z.of(Tensor::fc2_input) + (z.weighted ? 0 : z.of(Tensor::row_weight)));
    case Op::fc2:
      return work(2 * z.N * z.h * z.m,
                  z.of(Tensor::fc2_input) + z.of(Tensor::expert_output) + z.rows.active * z.weight(z.h * z.m));
    case Op::combine:
      return combine(z, PassKind::forward);
    case Op::unpermute:
      return unpermute_forward(z, fresh);
    case Op::final_norm:
      return work(0, z.of(Tensor::block_input) + z.weight(z.h) + z.of(Tensor::final_norm_output));
    case Op::head:
      return head_forward(z, vocabulary);
    case Op::square_loss:
      return work(0, z.of(Tensor::block_input));
  }
  return {};
}

OperatorWork backward_work(Op op, const Sizes& z, bool fresh) {
  const ModelShape& shape = z.c.shape;
  const std::int64_t qkv = z.h * shape.qkv_size() / z.t, out = z.h * shape.query_size() / z.t;
  const std::int64_t mlp = z.h * z.c.mlp_size / z.t, vocabulary = z.h * shape.vocab_size / z.t;
  switch (op) {
    case Op::gate:
    case Op::synthetic_input:
      return {};
    case Op::embedding:
      return after_gathering(z, work(0, 4 * z.S + 3 * z.all));
    case Op::attention_norm:
      return norm_backward(z, Tensor::block_input, Tensor::d_attention_norm_output, true);
    case Op::qkv: {
      OperatorWork w = column_backward(z, Tensor::d_qkv, qkv, true);
      w.bytes += Bytes(rotary_bytes(z));
      return w;
    }
    case Op::attention_core:
      return work(5 * z.S * z.c.sequence_length * shape.query_size() / z.t,
                  2 * z.of(Tensor::qkv) + 2 * z.of(Tensor::attention_output) + z.of(Tensor::log_sum_exp));
    case Op::out_projection:
      return row_backward(z, Tensor::attention_output, Tensor::d_attention_output, out);
    case Op::mlp_norm:
      return norm_backward(z, Tensor::mlp_norm_input, Tensor::d_mlp_norm_output, true);
    case Op::router: {
      const std::int64_t logits = z.of(Tensor::d_router_logits), weights = z.h * z.E;
      return work(4 * z.T * weights, 8 * z.kT + 2 * logits + logits + z.weight(weights) +
                                         (fresh ? 1 : 2) * z.of(Tensor::d_mlp_norm_output) +
                                         z.of(Tensor::mlp_norm_output) + logits + z.gradient(weights));
    }
    case Op::mlp_fc1:
      return column_backward(z, Tensor::d_mlp_fc1_output, 2 * mlp, fresh);
    case Op::mlp_swiglu:
      return work(0, 2 * z.of(Tensor::mlp_fc1_output) + z.of(Tensor::mlp_fc2_input));
    case Op::mlp_fc2:
      return row_backward(z, Tensor::mlp_fc2_input, Tensor::d_mlp_fc2_input, mlp);
    case Op::sum_slices:
      return work(0, 4 * z.kT + z.of(Tensor::d_sent_rows) + (fresh ? 1 : 2) * z.of(Tensor::d_mlp_norm_output));
    case Op::dispatch:
      return dispatch_backward(z, fresh);
    case Op::fc1:
      return grouped_backward(z, Tensor::fc1_input, Tensor::d_fc1_output, Tensor::d_fc1_input, 2 * z.h * z.m);
    case Op::swiglu:
      return work(0, 2 * z.of(Tensor::fc1_output) + z.of(Tensor::fc2_input) +
                         (z.weighted ? 0 : 2 * z.of(Tensor::row_weight)));
    case Op::fc2:
      return grouped_backward(z, Tensor::fc2_input, Tensor::d_expert_output, Tensor::d_fc2_input, z.h * z.m);
    case Op::combine:
      return combine(z, PassKind::backward);
    case Op::unpermute:
      return unpermute_backward(z);
    case Op::final_norm:
      return norm_backward(z, Tensor::block_input, Tensor::d_final_norm_output, false);
    case Op::head:
      return column_backward(z, Tensor::logits_gradient, vocabulary, true);
    case Op::square_loss:
      return work(0, 2 * z.of(Tensor::block_input));
  }
  return {};
}

}  // namespace

OperatorWork operator_work(Op op, PassKind pass, const BlockContext& context, ExpertRows rows, bool fresh) {
  const Sizes sizes(context, rows);
  return pass == PassKind::forward ? forward_work(op, sizes, fresh) : backward_work(op, sizes, fresh);
}

Flops model_flops(Op op, PassKind pass, const BlockContext& c, ExpertRows rows, bool causal) {
  switch (op) {
    case Op::attention_core: {  // the convention counts scores and values once forward, twice backward
      const std::int64_t scores =
          (causal ? 2 : 4) * c.tokens() * c.sequence_length * c.shape.query_size() / c.tensor_parallel;
      return Flops(pass == PassKind::forward ? scores : 2 * scores);
    }
    case Op::router:
      return {};
    default:
      return operator_work(op, pass, c, rows, false).flops;
  }
}

}  // namespace spillway
