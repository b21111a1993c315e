#include <cmath>
#include <limits>
#include <vector>

#include "device/ops/attention.hpp"

namespace spillway::device::ops::reference {
namespace {

/// One query of one head: where its vectors lie.
struct Query {
  std::int64_t first_row, position, query, key, value, head_dim;
  std::int64_t row() const { return first_row + position; }
};

/// Runs body(query, head) over all queries of all heads.
template <class Body>
void for_each_query(const AttentionShape& shape, const Body& body) {
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence)
    for (std::int64_t head = 0; head < shape.heads; ++head)
      for (std::int64_t i = 0; i < shape.sequence_length; ++i) {
        const std::int64_t group = head / (shape.heads / shape.key_value_heads);
        const std::int64_t key = (shape.heads + group) * shape.head_dim;
        body(Query{sequence * shape.sequence_length, i, head * shape.head_dim, key,
                   key + shape.key_value_heads * shape.head_dim, shape.head_dim},
             head);
      }
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

struct Softmax {
  std::vector<double> probability;  ///< of keys 0 .. position
  double log_sum_exp = 0.0;
};

Softmax softmax(const Query& q, Matrix<const double> qkv) {
  Softmax result;
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0.0;
  for (std::int64_t j = 0; j <= q.position; ++j) {
    const double* key = qkv.row(q.first_row + j) + q.key;
    result.probability.push_back(dot(qkv.row(q.row()) + q.query, key, q.head_dim) / std::sqrt(q.head_dim));
    maximum = std::max(maximum, result.probability.back());
  }
  for (double& p : result.probability) sum += p = std::exp(p - maximum);
  for (double& p : result.probability) p /= sum;
  result.log_sum_exp = maximum + std::log(sum);
  return result;
}

}  // namespace

void attention_forward(const AttentionShape& shape, Matrix<const double> qkv, Matrix<double> output,
                       Matrix<double> log_sum_exp) {
  for_each_query(shape, [&](const Query& q, std::int64_t head) {
    const Softmax s = softmax(q, qkv);
    log_sum_exp.row(q.row())[head] = s.log_sum_exp;
    for (std::int64_t d = 0; d < q.head_dim; ++d) {
      double& out = output.row(q.row())[q.query + d] = 0.0;
      for (std::int64_t j = 0; j <= q.position; ++j) out += s.probability[j] * qkv.row(q.first_row + j)[q.value + d];
    }
  });
}

void attention_backward(const AttentionShape& shape, Matrix<const double> qkv, Matrix<const double> d_output,
                        Matrix<double> d_qkv) {
  for (std::int64_t i = 0; i < d_qkv.size(); ++i) d_qkv.data[i] = 0.0;
  for_each_query(shape, [&](const Query& q, std::int64_t) {
    const std::vector<double> probability = softmax(q, qkv).probability;
    const double* d_out = d_output.row(q.row()) + q.query;
    std::vector<double> d_probability;
    double mean = 0.0;
    for (std::int64_t j = 0; j <= q.position; ++j) {
      d_probability.push_back(dot(d_out, qkv.row(q.first_row + j) + q.value, q.head_dim));
      mean += probability[j] * d_probability[j];
    }
    for (std::int64_t j = 0; j <= q.position; ++j) {
      const double d_score = probability[j] * (d_probability[j] - mean) / std::sqrt(q.head_dim);
      const double *query = qkv.row(q.row()) + q.query, *key = qkv.row(q.first_row + j) + q.key;
      double *d_query = d_qkv.row(q.row()) + q.query, *d_row = d_qkv.row(q.first_row + j);
      for (std::int64_t d = 0; d < q.head_dim; ++d) {
        d_query[d] += d_score * key[d];
        d_row[q.key + d] += d_score * query[d];
        d_row[q.value + d] += probability[j] * d_out[d];
      }
    }
  });
}

}  // namespace spillway::device::ops::reference
