// Operators that a tensor-parallel group computes together (Megatron-LM's sequence parallelism). Between them a rank has
// T = S / t of the micro-batch's tokens. Column-parallel products (QKV, fc1, head) gather the rows of all tokens first;
// row-parallel ones (out projection, fc2) and the embedding leave partial sums of all tokens, which go to the ranks of
// their tokens and are added there in rank order. Backward mirrors it.
#include <numeric>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "device/gemm.hpp"
#include "device/ops/cross_entropy.hpp"
#include "device/ops/elementwise.hpp"
#include "device/ops/embedding.hpp"
#include "run/attention_shapes.hpp"
#include "run/operator_runner.hpp"
#include "workload/routing/tokens.hpp"

namespace spillway {

namespace ops = device::ops;
using device::Matrix;
using device::Transpose;

Seconds OperatorRunner::collective(device::Event event) { return timer_.arrive(timer_.network(std::move(event))); }

Seconds OperatorRunner::gather_tokens(const Call& call, Tensor mine) {
  return collective(device::all_gather_rows(engine_.network, tensor_group(call.instruction), tensor(call, mine),
                                            tensor(call, Tensor::gathered_rows), call.ready));
}

Seconds OperatorRunner::scatter_sums(const Call& call, const Sum& sum, Seconds ready) {
  const Matrix<float> received = tensor(call, Tensor::gathered_rows), into = tensor(call, sum.into);
  const Seconds end = collective(device::exchange_rows(engine_.network, tensor_group(call.instruction),
                                                       tensor(call, Tensor::partial_rows), received, ready));
  return timer_.compute(end, [&] {
    device::Stream& stream = timer_.stream();
    const bool fresh = !sum.adds && !sum.residual;
    if (sum.residual) ops::copy(stream, tensor(call, *sum.residual), into);
    for (std::int64_t first = 0; first < received.rows; first += into.rows) {
      const Matrix<float> part = received.slice(first, into.rows);
      fresh&& first == 0 ? ops::copy(stream, part, into) : ops::accumulate(stream, part, into);
    }
  });
}

Seconds OperatorRunner::row_product(const Call& call, Tensor x, Parameter weight, const Sum& sum) {
  const Seconds end = timer_.compute(call.ready, [&] {
    device::gemm(timer_.stream(), tensor(call, x), Transpose::no, value(call, weight), Transpose::no, 0,
                 tensor(call, Tensor::partial_rows));
  });
  return scatter_sums(call, sum, end);
}

Seconds OperatorRunner::divided_loss(const Call& call, Seconds ready) {
  const Case& c = setup_.run_case;
  const Matrix<float> logits = tensor(call, Tensor::logits_gradient), terms = tensor(call, Tensor::softmax_terms);
  std::vector<std::int32_t> labels = tokens(call.micro_batch);
  const TokenSource source{c.training.seed, c.model.vocab_size};
  for (std::int32_t& id : labels) id = source.label(id);
  const std::int64_t here = engine_.communicators.here.tensor;
  const ops::VocabularyPart part{labels.data(), here * logits.cols, here};
  const Matrix<float> mine = terms.slice(here * logits.rows, logits.rows);
  Seconds end = timer_.compute(ready, [&] {
    device::gemm(timer_.stream(), tensor(call, Tensor::gathered_rows), Transpose::no,
                 value(call, Parameter::head_weight), Transpose::no, 0, logits);
    ops::vocabulary_terms(timer_.stream(), logits, part, mine);
  });
  end = collective(device::all_gather_rows(engine_.network, tensor_group(call.instruction), mine, terms, end));
  std::vector<double> losses(static_cast<std::size_t>(logits.rows));
  end = timer_.compute(end, [&] {
    ops::vocabulary_cross_entropy(timer_.stream(), logits, part, terms,
                                  1.0f / static_cast<float>(c.tokens_per_iteration()), losses.data());
  });
  const auto first = losses.begin() + here * call.where.context.local_tokens();  // the others' ranks add theirs
  if (!call.instruction.recompute) loss_ += std::accumulate(first, first + call.where.context.local_tokens(), 0.0);
  return end;
}

Seconds OperatorRunner::tensor_forward(const Call& call) {
  expect_same(engine_.communicators.tensor_forward, call);
  device::Stream& stream = timer_.stream();
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto w = [&](Parameter name) { return value(call, name); };
  switch (call.instruction.op) {
    case Op::embedding: {
      const Seconds end = timer_.compute(call.ready, [&] {
        const Matrix<float> table = w(Parameter::embedding);
        ops::embedding_forward(stream, tokens(call.micro_batch).data(), table, t(Tensor::partial_rows),
                               engine_.communicators.here.tensor * table.rows);
      });
      return scatter_sums(call, {Tensor::block_output}, end);
    }
    case Op::qkv:
      return timer_.compute(gather_tokens(call, Tensor::attention_norm_output), [&] {
        for (int times = device::injected(device::Fault::extra_product) ? 2 : 1; times > 0; --times)
          device::gemm(stream, t(Tensor::gathered_rows), Transpose::no, w(Parameter::qkv_weight), Transpose::no, 0,
                       t(Tensor::qkv));
        ops::rotary_forward(stream, engine_.rotary, rotary_shape(call.where.context), t(Tensor::qkv));
      });
    case Op::out_projection:
      if (device::injected(device::Fault::wrong_residual))
        return row_product(call, Tensor::attention_output, Parameter::out_weight, {Tensor::mlp_norm_input});
      return row_product(call, Tensor::attention_output, Parameter::out_weight,
                         {Tensor::mlp_norm_input, Tensor::block_input});
    case Op::mlp_fc1:
      return timer_.compute(gather_tokens(call, Tensor::mlp_norm_output), [&] {
        device::gemm(stream, t(Tensor::gathered_rows), Transpose::no, w(Parameter::mlp_fc1_weight), Transpose::no, 0,
                     t(Tensor::mlp_fc1_output));
      });
    case Op::mlp_fc2: {
      Sum sum{Tensor::block_output, {}, !call.instruction.allocates(Tensor::block_output)};
      if (!sum.adds) sum.residual = Tensor::mlp_norm_input;
      return row_product(call, Tensor::mlp_fc2_input, Parameter::mlp_fc2_weight, sum);
    }
    case Op::head:
      return divided_loss(call, gather_tokens(call, Tensor::final_norm_output));
    default:
      throw InternalError(fmt::format("{} is not computed by a tensor-parallel group", name(call.instruction.op)));
  }
}

Seconds OperatorRunner::column_backward(const Call& call, const ColumnProduct& p) {
  device::Stream& stream = timer_.stream();
  const Seconds end = timer_.compute(gather_tokens(call, p.x), [&] {
    if (p.weight == Parameter::qkv_weight)
      ops::rotary_backward(stream, engine_.rotary, rotary_shape(call.where.context), tensor(call, p.dy));
    device::gemm(stream, tensor(call, p.dy), Transpose::no, value(call, p.weight), Transpose::yes, 0,
                 tensor(call, Tensor::partial_rows));
    if (p.weight == Parameter::qkv_weight && device::injected(device::Fault::skipped_gradient)) return;
    device::gemm(stream, tensor(call, Tensor::gathered_rows), Transpose::yes, tensor(call, p.dy), Transpose::no, 1,
                 gradient(call, p.weight));
  });
  return scatter_sums(call, {p.dx, {}, !call.instruction.allocates(p.dx)}, end);
}

Seconds OperatorRunner::row_backward(const Call& call, Tensor x, Tensor dx, Parameter weight) {
  device::Stream& stream = timer_.stream();
  return timer_.compute(gather_tokens(call, Tensor::d_residual), [&] {
    const Matrix<float> dy = tensor(call, Tensor::gathered_rows);
    device::gemm(stream, dy, Transpose::no, value(call, weight), Transpose::yes, 0, tensor(call, dx));
    device::gemm(stream, tensor(call, x), Transpose::yes, dy, Transpose::no, 1, gradient(call, weight));
  });
}

Seconds OperatorRunner::tensor_backward(const Call& call) {
  expect_same(engine_.communicators.tensor_forward, call);
  switch (call.instruction.op) {
    case Op::embedding:
      return timer_.compute(gather_tokens(call, Tensor::d_residual), [&] {
        const Matrix<float> d_table = gradient(call, Parameter::embedding);
        ops::embedding_backward(timer_.stream(), tokens(call.micro_batch).data(), tensor(call, Tensor::gathered_rows),
                                d_table, engine_.communicators.here.tensor * d_table.rows);
      });
    case Op::qkv:
      return column_backward(call, {Tensor::attention_norm_output, Tensor::d_qkv, Tensor::d_attention_norm_output,
                                    Parameter::qkv_weight});
    case Op::out_projection:
      return row_backward(call, Tensor::attention_output, Tensor::d_attention_output, Parameter::out_weight);
    case Op::mlp_fc1:
      return column_backward(call, {Tensor::mlp_norm_output, Tensor::d_mlp_fc1_output, Tensor::d_mlp_norm_output,
                                    Parameter::mlp_fc1_weight});
    case Op::mlp_fc2:
      return row_backward(call, Tensor::mlp_fc2_input, Tensor::d_mlp_fc2_input, Parameter::mlp_fc2_weight);
    case Op::head:
      return column_backward(call, {Tensor::final_norm_output, Tensor::logits_gradient, Tensor::d_final_norm_output,
                                    Parameter::head_weight});
    default:
      throw InternalError(fmt::format("{} is not computed by a tensor-parallel group", name(call.instruction.op)));
  }
}

void OperatorRunner::drain_tensor(const Call& call) {
  expect_same(engine_.communicators.tensor_forward, call);
  const Instruction& i = call.instruction;
  const BlockContext& context = call.where.context;
  const std::int64_t h = context.shape.hidden_size, t = context.tensor_parallel, rows = context.tokens();
  const OperatorWork work = operator_work(i.op, i.pass, context, {}, false);
  const bool loss = i.op == Op::head && i.pass == PassKind::forward;
  const std::int64_t most = std::max(rows * h, 3 * t * rows);
  scratch_out_.resize(std::max<std::size_t>(scratch_out_.size(), most));
  scratch_in_.resize(std::max<std::size_t>(scratch_in_.size(), most));
  const auto gather = [&](std::int64_t all, std::int64_t cols) {
    device::all_gather_rows(engine_.network, tensor_group(i), {scratch_out_.data(), all / t, cols},
                            {scratch_in_.data(), all, cols}, Seconds(0))
        .wait();
  };
  if (work.gathered.value > 0) gather(rows, h);
  if (loss) gather(t * rows, 3);
  if (work.received.value > 0 && !loss)
    device::exchange_rows(engine_.network, tensor_group(i), {scratch_out_.data(), rows, h},
                          {scratch_in_.data(), rows, h}, Seconds(0))
        .wait();
}

}  // namespace spillway
