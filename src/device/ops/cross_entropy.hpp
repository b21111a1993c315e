#pragma once
// Losses: cross-entropy at the output head, and the sum of squares that stands in where the head is off.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

/// Returns scale * sum over rows of -log softmax(logits)[label], rows added in order in double, and replaces logits
/// [S, V] by their gradient. S labels below V; scale is 1 / tokens of the global batch.
/// Charges labels + logits twice (in place).
double cross_entropy(Stream& stream, Matrix<float> logits, const std::int32_t* labels, float scale);

/// The part of a divided vocabulary that a rank has: ids [first_id, first_id + V), the `part`-th of all.
struct VocabularyPart {
  const std::int32_t* labels;  ///< [S], of the whole vocabulary
  std::int64_t first_id = 0, part = 0;
};

/// cross_entropy over a divided vocabulary, first half: what the ranks have to tell each other about every row of their
/// logits [S, V]. terms [S, 3]: the largest logit, the sum of exp(logit - largest), the label's logit (0 where another part
/// has the label). The logits become exp(logit - largest). Charges labels + logits twice + terms.
void vocabulary_terms(Stream& stream, Matrix<float> logits, const VocabularyPart& part, Matrix<float> terms);

/// Second half: `terms` [parts * S, 3] of all parts one after the other; the exponentials become the gradient. Returns
/// scale * the loss of every row [S] in `losses`. Charges labels + logits twice + terms.
void vocabulary_cross_entropy(Stream& stream, Matrix<float> exponentials, const VocabularyPart& part,
                              Matrix<const float> terms, float scale, double* losses);

/// Returns scale / 2 * sum of x^2, rows added in order in double. Charges x.
double square_loss(Stream& stream, Matrix<const float> x, float scale);
/// d_x = scale * x, overwritten; d_x may be x. Charges x + d_x.
void square_loss_backward(Stream& stream, Matrix<const float> x, float scale, Matrix<float> d_x);

}  // namespace spillway::device::ops
