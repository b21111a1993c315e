// Where a model begins and ends: embedding or noise, final norm, head and loss.
#include "device/gemm.hpp"
#include "device/ops/cross_entropy.hpp"
#include "device/ops/embedding.hpp"
#include "device/ops/initialize.hpp"
#include "device/ops/rms_norm.hpp"
#include "run/load_source.hpp"
#include "run/operator_runner.hpp"
#include "workload/routing/tokens.hpp"

namespace spillway {

namespace ops = device::ops;
using device::Transpose;

std::vector<std::int32_t> OperatorRunner::tokens(int micro_batch) const {
  const TrainingOptions& training = setup_.run_case.training;
  const TokenSource source{training.seed, setup_.run_case.model.vocab_size};
  const std::int64_t s = training.sequence_length;
  std::vector<std::int32_t> ids(s * training.micro_batch_size);
  for (std::int64_t j = 0; j < training.micro_batch_size; ++j)
    source.tokens(iteration_, sequence(micro_batch, j), std::span(ids).subspan(j * s, s));
  return ids;
}

void OperatorRunner::ends_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const Case& c = setup_.run_case;
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const float per_token = 1.0f / static_cast<float>(c.tokens_per_iteration());
  switch (call.instruction.op) {
    case Op::embedding:
      ops::embedding_forward(stream, tokens(call.micro_batch).data(), value(call, Parameter::embedding),
                             t(Tensor::block_output));
      break;
    case Op::synthetic_input: {
      const device::Matrix<float> x = t(Tensor::block_output);
      std::int64_t row = 0;
      for (const TokenRun& run : tokens_of(c, engine_.communicators.here, call.micro_batch)) {
        ops::initialize_normal(x.slice(row, run.count), synthetic_input_key(c.training.seed, iteration_, run.sequence),
                               1.0, static_cast<std::uint64_t>(run.first * x.cols));
        row += run.count;
      }
      break;
    }
    case Op::final_norm:
      ops::rms_norm_forward(stream, t(Tensor::block_input), value(call, Parameter::final_norm_gain),
                            t(Tensor::final_norm_output));
      break;
    case Op::head: {
      device::gemm(stream, t(Tensor::final_norm_output), Transpose::no, value(call, Parameter::head_weight),
                   Transpose::no, 0, t(Tensor::logits_gradient));
      std::vector<std::int32_t> labels = tokens(call.micro_batch);
      const TokenSource source{c.training.seed, c.model.vocab_size};
      for (std::int32_t& id : labels) id = source.label(id);
      const double loss = ops::cross_entropy(stream, t(Tensor::logits_gradient), labels.data(), per_token);
      if (!call.instruction.recompute) loss_ += loss;
      break;
    }
    case Op::square_loss:
      loss_ += ops::square_loss(stream, t(Tensor::block_input), per_token / static_cast<float>(c.model.hidden_size));
      break;
    default:
      break;
  }
}

void OperatorRunner::ends_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const Case& c = setup_.run_case;
  const auto t = [&](Tensor name) { return tensor(call, name); };
  switch (call.instruction.op) {
    case Op::embedding:
      ops::embedding_backward(stream, tokens(call.micro_batch).data(), t(Tensor::d_residual),
                              gradient(call, Parameter::embedding));
      break;
    case Op::final_norm:
      ops::rms_norm_backward(stream, t(Tensor::block_input), value(call, Parameter::final_norm_gain),
                             t(Tensor::d_final_norm_output), t(Tensor::d_residual),
                             gradient(call, Parameter::final_norm_gain), false);
      break;
    case Op::head:
      product_backward(call, Tensor::final_norm_output, Tensor::logits_gradient, Tensor::d_final_norm_output,
                       Parameter::head_weight);
      break;
    case Op::square_loss:
      ops::square_loss_backward(stream, t(Tensor::block_input),
                                1.0f / static_cast<float>(c.tokens_per_iteration() * c.model.hidden_size),
                                t(Tensor::d_residual));
      break;
    default:
      break;
  }
}

}  // namespace spillway
