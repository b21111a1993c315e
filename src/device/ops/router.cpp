#include "device/ops/router.hpp"

#include "device/ops/blocks.hpp"
#include "device/ops/exponential.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

/// Replaces n logits by their softmax.
KOKKOS_INLINE_FUNCTION void softmax(float* p, std::int64_t n) {
  const float largest = lane_max(n, p[0], [p](std::int64_t e) { return p[e]; });
  const float inverse = 1.0f / lane_sum(n, [=](std::int64_t e) { return p[e] = exponential(p[e] - largest); });
#pragma omp simd
  for (std::int64_t e = 0; e < n; ++e) p[e] *= inverse;
}

/// Softmax over the chosen logits, 0 elsewhere. Equal to p_e / (sum of the chosen p), also where every chosen p is too
/// small for a float: choices are imposed, so the router may think nothing of them.
KOKKOS_INLINE_FUNCTION void combine_weights(const float* logits, const std::int32_t* chosen, std::int64_t k,
                                            std::int64_t experts, float* weight) {
  for (std::int64_t e = 0; e < experts; ++e) weight[e] = 0;
  if (k == 0) return;
  float largest = logits[chosen[0]];
  for (std::int64_t j = 1; j < k; ++j) largest = logits[chosen[j]] > largest ? logits[chosen[j]] : largest;
  float sum = 0;
  for (std::int64_t j = 0; j < k; ++j) sum += weight[chosen[j]] = exponential(logits[chosen[j]] - largest);
  for (std::int64_t j = 0; j < k; ++j) weight[chosen[j]] /= sum;
}

}  // namespace

void router_forward(Stream& stream, Matrix<const float> u, Matrix<const float> w, Matrix<const std::int32_t> choices,
                    Matrix<float> state) {
  const std::int64_t tokens = u.rows, experts = w.cols;
  expect_shape("router: choices", choices, tokens, choices.cols);
  expect_shape("router: state", state, 2 * tokens, experts);
  const Matrix<float> probabilities = state.slice(0, tokens), weights = state.slice(tokens, tokens);
  gemm(stream, u, Transpose::no, w, Transpose::no, 0.0f, probabilities);
  const Work work{{}, choices.bytes() + probabilities.bytes() * 2 + weights.bytes()};
  stream.parallel_for(
      "router_forward", tokens, work, KOKKOS_LAMBDA(std::int64_t t) {
        const std::int32_t* chosen = choices.row(t);
        float* p = probabilities.row(t);
        float* weight = weights.row(t);
        combine_weights(p, chosen, choices.cols, experts, weight);
        softmax(p, experts);
      });
}

void router_backward(Stream& stream, Matrix<const float> u, Matrix<const float> w, Matrix<const std::int32_t> choices,
                     Matrix<const float> state, Matrix<const float> d_weights, Matrix<float> d_logits,
                     Matrix<float> d_u, Matrix<float> d_w, bool accumulate_d_u) {
  const std::int64_t tokens = u.rows, experts = w.cols;
  expect_shape("router: choices", choices, tokens, choices.cols);
  expect_shape("router: state", state, 2 * tokens, experts);
  expect_shape("router: d_weights", d_weights, tokens, choices.cols);
  expect_shape("router: d_logits", d_logits, tokens, experts);
  const Matrix<const float> weights = state.slice(tokens, tokens);
  const Work work{{}, choices.bytes() + weights.bytes() + d_weights.bytes() + d_logits.bytes()};
  stream.parallel_for(
      "router_backward", tokens, work, KOKKOS_LAMBDA(std::int64_t t) {
        const std::int32_t* chosen = choices.row(t);
        const float* weight = weights.row(t);
        const float* d_weight = d_weights.row(t);
        float* d_logit = d_logits.row(t);
        float mean = 0;
        for (std::int64_t j = 0; j < choices.cols; ++j) mean += weight[chosen[j]] * d_weight[j];
        for (std::int64_t e = 0; e < experts; ++e) d_logit[e] = 0;
        for (std::int64_t j = 0; j < choices.cols; ++j) d_logit[chosen[j]] = weight[chosen[j]] * (d_weight[j] - mean);
      });
  gemm(stream, d_logits, Transpose::no, w, Transpose::yes, accumulate_d_u ? 1.0f : 0.0f, d_u);
  gemm(stream, u, Transpose::yes, d_logits, Transpose::no, 1.0f, d_w);
}

}  // namespace spillway::device::ops
