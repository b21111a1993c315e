#include "device/ops/embedding.hpp"

#include "device/ops/embedding_reference.hpp"
#include "operands.hpp"

namespace spillway::device::ops {
namespace {

using namespace device::testing;

struct EmbeddingExtents {
  std::int64_t tokens, vocabulary, hidden;
};
class Embedding : public ::testing::TestWithParam<EmbeddingExtents> {
 protected:
  /// Ids that repeat, so that gradients of one row meet.
  static Operand<std::int32_t> ids(std::int64_t tokens, std::int64_t vocabulary) {
    Operand<std::int32_t> id(tokens, 1);
    for (std::int64_t s = 0; s < tokens; ++s) id[s] = static_cast<std::int32_t>(s * s % vocabulary);
    return id;
  }
  const std::int64_t tokens = GetParam().tokens, vocabulary = GetParam().vocabulary, hidden = GetParam().hidden;
  const Operand<std::int32_t> token = ids(tokens, vocabulary);
  const Operand<float> table = random_operand(vocabulary, hidden, 1), d_out = random_operand(tokens, hidden, 2);
  Operand<float> d_table = random_operand(vocabulary, hidden, 3);
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(Extents, Embedding,
                         ::testing::Values(EmbeddingExtents{0, 3, 2}, EmbeddingExtents{1, 1, 1},
                                           EmbeddingExtents{9, 5, 3}, EmbeddingExtents{40, 7, 300}));

TEST_P(Embedding, ForwardAgreesWithReferenceAndChargesTheRowsRead) {
  Operand<float> out(tokens, hidden);
  Operand<double> expected(tokens, hidden);
  embedding_forward(stream, token.data(), table, out);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (tokens + 2 * tokens * hidden))}));
  reference::embedding_forward(token.data(), Operand<double>(table), expected);
  expect_close(out, expected, 0);
}

TEST_P(Embedding, BackwardAddsInTokenOrderAndChargesTheRowsTouched) {
  Operand<float> actual(d_table), in_order(d_table);
  Operand<double> expected(d_table);
  embedding_backward(stream, token.data(), d_out, actual);
  EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (tokens + 3 * tokens * hidden))}));
  for (std::int64_t i = 0; i < d_out.size(); ++i) in_order[token[i / hidden] * hidden + i % hidden] += d_out[i];
  expect_same_bits(actual, in_order);
  reference::embedding_backward(token.data(), Operand<double>(d_out), expected);
  expect_close(actual, expected, 5e-6);
}

TEST_P(Embedding, PartsOfADividedVocabularyAddUpToTheWhole) {
  Operand<float> whole(tokens, hidden), sum(tokens, hidden), d_whole(vocabulary, hidden), d_parts(vocabulary, hidden);
  embedding_forward(stream, token.data(), table, whole);
  embedding_backward(stream, token.data(), d_out, d_whole);
  const std::int64_t half = vocabulary / 2;
  for (const auto& [first, rows] : {std::pair(std::int64_t{0}, half), std::pair(half, vocabulary - half)}) {
    stream.take();
    Operand<float> part(tokens, hidden, 7.0f);
    embedding_forward(stream, token.data(), table.view().slice(first, rows), part, first);
    EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (tokens + 2 * tokens * hidden))}));
    for (std::int64_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    embedding_backward(stream, token.data(), d_out, d_parts.view().slice(first, rows), first);
    EXPECT_EQ(stream.take(), (Work{{}, Bytes(4 * (tokens + 3 * tokens * hidden))}));
  }
  expect_same_bits(sum, whole);
  expect_same_bits(d_parts, d_whole);
}

TEST(EmbeddingReference, BackwardIsTheGradientOfForward) {
  Operand<double> table(random_operand(4, 3, 1));
  const Operand<double> d_out(random_operand(5, 3, 2));
  const std::int32_t token[] = {2, 0, 2, 3, 2};
  Operand<double> d_table(4, 3);
  reference::embedding_backward(token, d_out, d_table);
  expect_gradient(table, d_table, [&] {
    Operand<double> out(5, 3);
    reference::embedding_forward(token, table, out);
    return inner(out, d_out);
  });
}

}  // namespace
}  // namespace spillway::device::ops
