// Attention, norms and the dense or shared MLP.
#include "device/fault.hpp"
#include "device/gemm.hpp"
#include "device/ops/attention.hpp"
#include "device/ops/elementwise.hpp"
#include "device/ops/rms_norm.hpp"
#include "device/ops/swiglu.hpp"
#include "run/attention_shapes.hpp"
#include "run/operator_runner.hpp"

namespace spillway {
namespace {

using device::Transpose;
namespace ops = device::ops;

}  // namespace

void OperatorRunner::dense_forward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const BlockContext& context = call.where.context;
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto w = [&](Parameter name) { return value(call, name); };
  switch (call.instruction.op) {
    case Op::attention_norm:
      ops::rms_norm_forward(stream, t(Tensor::block_input), w(Parameter::attention_norm_gain),
                            t(Tensor::attention_norm_output));
      break;
    case Op::qkv:
      device::gemm(stream, t(Tensor::attention_norm_output), Transpose::no, w(Parameter::qkv_weight), Transpose::no, 0,
                   t(Tensor::qkv));
      if (device::injected(device::Fault::extra_product))
        device::gemm(stream, t(Tensor::attention_norm_output), Transpose::no, w(Parameter::qkv_weight), Transpose::no,
                     0, t(Tensor::qkv));
      ops::rotary_forward(stream, engine_.rotary, rotary_shape(context), t(Tensor::qkv));
      break;
    case Op::attention_core:
      ops::attention_forward(stream, attention_shape(context), t(Tensor::qkv), t(Tensor::attention_output),
                             t(Tensor::log_sum_exp));
      break;
    case Op::out_projection:
      ops::copy(stream, t(Tensor::block_input), t(Tensor::mlp_norm_input));
      device::gemm(stream, t(Tensor::attention_output), Transpose::no, w(Parameter::out_weight), Transpose::no,
                   device::injected(device::Fault::wrong_residual) ? 0 : 1, t(Tensor::mlp_norm_input));
      break;
    case Op::mlp_norm:
      ops::rms_norm_forward(stream, t(Tensor::mlp_norm_input), w(Parameter::mlp_norm_gain), t(Tensor::mlp_norm_output));
      break;
    case Op::mlp_fc1:
      device::gemm(stream, t(Tensor::mlp_norm_output), Transpose::no, w(Parameter::mlp_fc1_weight), Transpose::no, 0,
                   t(Tensor::mlp_fc1_output));
      break;
    case Op::mlp_swiglu:
      ops::swiglu_forward(stream, t(Tensor::mlp_fc1_output), nullptr, t(Tensor::mlp_fc2_input));
      break;
    case Op::mlp_fc2:
      if (call.instruction.allocates(Tensor::block_output))
        ops::copy(stream, t(Tensor::mlp_norm_input), t(Tensor::block_output));
      device::gemm(stream, t(Tensor::mlp_fc2_input), Transpose::no, w(Parameter::mlp_fc2_weight), Transpose::no, 1,
                   t(Tensor::block_output));
      break;
    default:
      break;
  }
}

/// dx = dy W^T, added where another operator already wrote dx; dW += x^T dy.
void OperatorRunner::product_backward(const Call& call, Tensor x, Tensor dy, Tensor dx, Parameter weight) {
  device::Stream& stream = timer_.stream();
  const float beta = call.instruction.allocates(dx) ? 0 : 1;
  device::gemm(stream, tensor(call, dy), Transpose::no, value(call, weight), Transpose::yes, beta, tensor(call, dx));
  if (weight == Parameter::qkv_weight && device::injected(device::Fault::skipped_gradient)) return;
  device::gemm(stream, tensor(call, x), Transpose::yes, tensor(call, dy), Transpose::no, 1, gradient(call, weight));
}

void OperatorRunner::dense_backward(const Call& call) {
  device::Stream& stream = timer_.stream();
  const BlockContext& context = call.where.context;
  const auto t = [&](Tensor name) { return tensor(call, name); };
  const auto w = [&](Parameter name) { return value(call, name); };
  const auto g = [&](Parameter name) { return gradient(call, name); };
  switch (call.instruction.op) {
    case Op::attention_norm:
      ops::rms_norm_backward(stream, t(Tensor::block_input), w(Parameter::attention_norm_gain),
                             t(Tensor::d_attention_norm_output), t(Tensor::d_residual),
                             g(Parameter::attention_norm_gain), true);
      break;
    case Op::qkv:
      ops::rotary_backward(stream, engine_.rotary, rotary_shape(context), t(Tensor::d_qkv));
      product_backward(call, Tensor::attention_norm_output, Tensor::d_qkv, Tensor::d_attention_norm_output,
                       Parameter::qkv_weight);
      break;
    case Op::attention_core:
      ops::attention_backward(stream, attention_shape(context),
                              {t(Tensor::qkv), t(Tensor::attention_output), t(Tensor::log_sum_exp)},
                              t(Tensor::d_attention_output), t(Tensor::d_qkv));
      break;
    case Op::out_projection:
      product_backward(call, Tensor::attention_output, Tensor::d_residual, Tensor::d_attention_output,
                       Parameter::out_weight);
      break;
    case Op::mlp_norm:
      ops::rms_norm_backward(stream, t(Tensor::mlp_norm_input), w(Parameter::mlp_norm_gain),
                             t(Tensor::d_mlp_norm_output), t(Tensor::d_residual), g(Parameter::mlp_norm_gain), true);
      break;
    case Op::mlp_fc1:
      product_backward(call, Tensor::mlp_norm_output, Tensor::d_mlp_fc1_output, Tensor::d_mlp_norm_output,
                       Parameter::mlp_fc1_weight);
      break;
    case Op::mlp_swiglu:
      ops::swiglu_backward(stream, t(Tensor::mlp_fc1_output), nullptr, t(Tensor::d_mlp_fc2_input),
                           t(Tensor::d_mlp_fc1_output), nullptr);
      break;
    case Op::mlp_fc2:
      product_backward(call, Tensor::mlp_fc2_input, Tensor::d_residual, Tensor::d_mlp_fc2_input,
                       Parameter::mlp_fc2_weight);
      break;
    default:
      break;
  }
}

}  // namespace spillway
