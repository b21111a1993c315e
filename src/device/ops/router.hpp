#pragma once
// The router: softmax over all experts, then the probabilities of the chosen ones scaled to sum to 1. Which experts a
// token gets is imposed; probabilities, weights and gradients are the router's own.
#include "device/gemm.hpp"
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// u [T, h] and w [h, E] give the logits; choices [T, k] are distinct experts per token. state [2T, E] holds first the
/// T rows of probabilities, then the T rows of combine weights: p_e / (sum of the chosen p), 0 where not chosen.
/// Charges the product, then choices + the probabilities twice (in place on the logits) + the weights.
void router_forward(Stream& stream, Matrix<const float> u, Matrix<const float> w, Matrix<const std::int32_t> choices,
                    Matrix<float> state);

/// d_weights [T, k] is the gradient of the chosen weights, in the order of choices. d_logits [T, E] is scratch and
/// overwritten; d_u [T, h] is added to or overwritten; d_w [h, E] is added to. Only the weights' rows of state are
/// read: the scaling undoes the softmax over experts that were not chosen, whose logits get no gradient.
/// Charges choices + weights + d_weights + d_logits, then the two products.
void router_backward(Stream& stream, Matrix<const float> u, Matrix<const float> w, Matrix<const std::int32_t> choices,
                     Matrix<const float> state, Matrix<const float> d_weights, Matrix<float> d_logits,
                     Matrix<float> d_u, Matrix<float> d_w, bool accumulate_d_u);

}  // namespace spillway::device::ops
