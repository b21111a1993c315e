#include "device/ops/attention.hpp"

#include <cmath>
#include <limits>

#include "device/ops/attention_blocks.hpp"
#include "device/ops/blocks.hpp"
#include "device/ops/exponential.hpp"
#include "device/ops/lanes.hpp"

namespace spillway::device::ops {
namespace {

using Block = StridedMatrix<float>;
using ConstBlock = StridedMatrix<const float>;

constexpr Transpose plain = Transpose::no, transposed = Transpose::yes;

float scale(const AttentionShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

ConstBlock read(Block x) { return {x.data, x.rows, x.cols, x.stride}; }

/// Softmax of a query row over the keys seen so far.
struct RunningRow {
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0.0f;
};

/// Turns scores of the first `visible` keys into exp(factor * score - maximum), the others into 0. Returns what the sums
/// over earlier keys must be multiplied with.
float softmax_row(float* scores, std::int64_t visible, std::int64_t keys, float factor, RunningRow& row) {
  const float maximum = lane_max(visible, row.maximum, [=](std::int64_t j) { return factor * scores[j]; });
  const float sum =
      lane_sum(visible, [=](std::int64_t j) { return scores[j] = exponential(factor * scores[j] - maximum); });
  std::fill(scores + visible, scores + keys, 0.0f);
  const float shrink = exponential(row.maximum - maximum);
  row = {maximum, row.sum * shrink + sum};
  return shrink;
}

void scale_row(Block x, std::int64_t i, float factor) {
  for (std::int64_t d = 0; d < x.cols; ++d) x.data[i * x.stride + d] *= factor;
}

struct ForwardTensors {
  Matrix<const float> qkv;
  Matrix<float> output, log_sum_exp;
};

void forward_head(const AttentionShape& shape, const Head& head, const ForwardTensors& t) {
  const std::int64_t s = shape.sequence_length, dim = shape.head_dim, widest = std::min(s, key_block);
  Scratch scratch(2 * widest * dim + query_block * (dim + widest));
  const Matrix<float> key_memory = scratch.take(widest, dim), value_memory = scratch.take(widest, dim);
  const Matrix<float> query_memory = scratch.take(query_block, dim), score_memory = scratch.take(query_block, widest);
  std::vector<RunningRow> running(static_cast<std::size_t>(s));
  for (std::int64_t k0 = 0; k0 < s; k0 += key_block) {
    const std::int64_t keys = std::min(key_block, s - k0);
    const auto k = pack(head_block(t.qkv, head.first_row + k0, keys, head.key, dim), key_memory);
    const auto v = pack(head_block(t.qkv, head.first_row + k0, keys, head.value, dim), value_memory);
    for (std::int64_t q0 = k0; q0 < s; q0 += query_block) {
      const std::int64_t queries = std::min(query_block, s - q0), seen = std::min(keys, q0 + queries - k0);
      const auto q = pack(head_block(t.qkv, head.first_row + q0, queries, head.query, dim), query_memory);
      const Block scores{score_memory.data, queries, seen, seen};
      const Block out = head_block(t.output, head.first_row + q0, queries, head.query, dim);
      strided_gemm(q, plain, {k.data, seen, dim, dim}, transposed, 0.0f, scores);
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int64_t visible = std::min(seen, q0 + i + 1 - k0);
        const float shrink = softmax_row(scores.data + i * seen, visible, seen, scale(shape), running[q0 + i]);
        if (k0 > 0) scale_row(out, i, shrink);
      }
      strided_gemm(read(scores), plain, {v.data, seen, dim, dim}, plain, k0 == 0 ? 0.0f : 1.0f, out);
      const bool last_keys = k0 + seen == q0 + queries;
      for (std::int64_t i = 0; last_keys && i < queries; ++i) {
        const RunningRow& row = running[q0 + i];
        scale_row(out, i, 1.0f / row.sum);
        t.log_sum_exp.row(head.first_row + q0 + i)[head.index] = row.maximum + std::log(row.sum);
      }
    }
  }
}

/// One block of keys in backward: packed operands and the gradients gathered for it.
struct KeyBlock {
  std::int64_t k0, keys;
  ConstBlock k, v;
  Matrix<float> d_k, d_v;
};

/// Memory of one query block in backward.
struct QueryMemory {
  Matrix<float> query, d_output, probability, d_score;
};

struct BackwardTensors {
  AttentionSaved saved;
  Matrix<const float> d_output;
  Matrix<float> d_qkv;
};

/// In: row i of scores q k^T in `p` and of d_output v^T in `ds`. Out: probabilities and gradients of the scores.
void score_gradient_row(float* p, float* ds, std::int64_t visible, float factor, float log_sum_exp, float mean) {
#pragma omp simd
  for (std::int64_t j = 0; j < visible; ++j) {
    p[j] = exponential(factor * p[j] - log_sum_exp);
    ds[j] = factor * p[j] * (ds[j] - mean);
  }
}

/// Adds a query block's share to the gradients of the key block, and the key block's share to the query gradient.
void backward_block(const AttentionShape& shape, const Head& head, std::int64_t q0, const KeyBlock& block,
                    const QueryMemory& memory, const BackwardTensors& t) {
  const std::int64_t dim = shape.head_dim, queries = std::min(query_block, shape.sequence_length - q0);
  const std::int64_t row0 = head.first_row + q0, seen = std::min(block.keys, q0 + queries - block.k0);
  const ConstBlock q = pack(head_block(t.saved.qkv, row0, queries, head.query, dim), memory.query);
  const ConstBlock d_out = pack(head_block(t.d_output, row0, queries, head.query, dim), memory.d_output);
  const ConstBlock k{block.k.data, seen, dim, dim};
  const Block p{memory.probability.data, queries, seen, seen}, d_s{memory.d_score.data, queries, seen, seen};
  strided_gemm(q, plain, k, transposed, 0.0f, p);
  strided_gemm(d_out, plain, {block.v.data, seen, dim, dim}, transposed, 0.0f, d_s);
  float mean[query_block];  // sum over keys of probability * d_probability
  for (std::int64_t i = 0; i < queries; ++i) {
    const float *out = t.saved.output.row(row0 + i) + head.query, *d = d_out.data + i * dim;
    mean[i] = lane_sum(dim, [=](std::int64_t j) { return out[j] * d[j]; });
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    float *p_row = p.data + i * seen, *d_s_row = d_s.data + i * seen;
    const std::int64_t visible = std::min(seen, q0 + i + 1 - block.k0);
    score_gradient_row(p_row, d_s_row, visible, scale(shape), t.saved.log_sum_exp.row(row0 + i)[head.index], mean[i]);
    std::fill(p_row + visible, p_row + seen, 0.0f);
    std::fill(d_s_row + visible, d_s_row + seen, 0.0f);
  }
  strided_gemm(read(p), transposed, d_out, plain, 1.0f, rows(block.d_v, seen));
  strided_gemm(read(d_s), transposed, q, plain, 1.0f, rows(block.d_k, seen));
  strided_gemm(read(d_s), plain, k, plain, block.k0 == 0 ? 0.0f : 1.0f,
               head_block(t.d_qkv, row0, queries, head.query, dim));
}

/// All query heads of one key/value head, in order.
void backward_group(const AttentionShape& shape, std::int64_t sequence, std::int64_t group, const BackwardTensors& t) {
  const std::int64_t s = shape.sequence_length, dim = shape.head_dim, widest = std::min(s, key_block);
  const std::int64_t first_head = group * shape.heads_per_group();
  const Head first = locate(shape, sequence, first_head);
  Scratch scratch(4 * widest * dim + 2 * query_block * (dim + widest));
  const auto k = scratch.take(widest, dim), v = scratch.take(widest, dim);
  const auto d_k = scratch.take(widest, dim), d_v = scratch.take(widest, dim);
  const QueryMemory memory{scratch.take(query_block, dim), scratch.take(query_block, dim),
                           scratch.take(query_block, widest), scratch.take(query_block, widest)};
  for (std::int64_t k0 = 0; k0 < s; k0 += key_block) {
    const std::int64_t keys = std::min(key_block, s - k0), row0 = first.first_row + k0;
    const ConstBlock key = head_block(t.saved.qkv, row0, keys, first.key, dim);
    const ConstBlock value = head_block(t.saved.qkv, row0, keys, first.value, dim);
    const KeyBlock block{k0, keys, pack(key, k), pack(value, v), d_k, d_v};
    std::fill_n(d_k.data, keys * dim, 0.0f);
    std::fill_n(d_v.data, keys * dim, 0.0f);
    for (std::int64_t h = first_head; h < first_head + shape.heads_per_group(); ++h)
      for (std::int64_t q0 = k0; q0 < s; q0 += query_block)
        backward_block(shape, locate(shape, sequence, h), q0, block, memory, t);
    copy(read(rows(d_k, keys)), head_block(t.d_qkv, row0, keys, first.key, dim));
    copy(read(rows(d_v, keys)), head_block(t.d_qkv, row0, keys, first.value, dim));
  }
}

void check(const AttentionShape& shape, Matrix<const float> qkv, Matrix<const float> output,
           Matrix<const float> log_sum_exp) {
  ensure(shape.key_value_heads > 0 && shape.heads % shape.key_value_heads == 0,
         "{} heads do not share {} key/value heads evenly", shape.heads, shape.key_value_heads);
  expect_shape("qkv", qkv, shape.rows(), shape.qkv_size());
  expect_shape("attention output", output, shape.rows(), shape.query_size());
  expect_shape("log-sum-exp", log_sum_exp, shape.rows(), shape.heads);
}

/// s^2 q summed over sequences.
std::int64_t score_products(const AttentionShape& shape) {
  return shape.rows() * shape.sequence_length * shape.query_size();
}

}  // namespace

void attention_forward(Stream& stream, const AttentionShape& shape, Matrix<const float> qkv, Matrix<float> output,
                       Matrix<float> log_sum_exp) {
  check(shape, qkv, output, log_sum_exp);
  const Work work{Flops(2 * score_products(shape)), qkv.bytes() + output.bytes() + log_sum_exp.bytes()};
  stream.parallel_for("attention_forward", shape.sequences * shape.heads, work, [=](std::int64_t task) {
    forward_head(shape, locate(shape, task / shape.heads, task % shape.heads), {qkv, output, log_sum_exp});
  });
}

void attention_backward(Stream& stream, const AttentionShape& shape, const AttentionSaved& saved,
                        Matrix<const float> d_output, Matrix<float> d_qkv) {
  check(shape, saved.qkv, saved.output, saved.log_sum_exp);
  check(shape, d_qkv, d_output, saved.log_sum_exp);
  const Work work{Flops(5 * score_products(shape)), saved.qkv.bytes() + saved.output.bytes() +
                                                        saved.log_sum_exp.bytes() + d_output.bytes() + d_qkv.bytes()};
  stream.parallel_for("attention_backward", shape.sequences * shape.key_value_heads, work, [=](std::int64_t task) {
    backward_group(shape, task / shape.key_value_heads, task % shape.key_value_heads, {saved, d_output, d_qkv});
  });
}

}  // namespace spillway::device::ops
