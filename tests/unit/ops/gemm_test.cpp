#include "device/gemm.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "base/error.hpp"
#include "device/gemm_reference.hpp"
#include "operands.hpp"

namespace spillway::device::testing {
namespace {

using Offsets = std::vector<std::int64_t>;
using ::testing::TestWithParam;

constexpr double tolerance = 1e-5;
constexpr Transpose no = Transpose::no, yes = Transpose::yes;

struct Product {
  std::int64_t m, n, k;
};

class GemmShapes : public TestWithParam<Product> {};

TEST_P(GemmShapes, EveryTransposeAndBetaAgreesWithTheReference) {
  const auto [m, n, k] = GetParam();
  for (const Transpose ta : {no, yes})
    for (const Transpose tb : {no, yes})
      for (const float beta : {0.0f, 1.0f}) {
        const Operand<float> a = ta == yes ? random_operand(k, m, 1) : random_operand(m, k, 1);
        const Operand<float> b = tb == yes ? random_operand(n, k, 2) : random_operand(k, n, 2);
        Operand<float> c = random_operand(m, n, 3);
        Operand<double> expected(c);
        Stream stream;
        gemm(stream, a, ta, b, tb, beta, c);
        reference::gemm(Operand<double>(a), ta, Operand<double>(b), tb, beta, expected);
        expect_close(c, expected, tolerance);
        EXPECT_EQ(stream.take(),
                  (Work{Flops(2 * m * n * k), Bytes(4 * (m * k + k * n + (beta == 0 ? 1 : 2) * m * n))}));
      }
}

INSTANTIATE_TEST_SUITE_P(Ops, GemmShapes,
                         ::testing::Values(Product{1, 1, 1}, Product{1, 7, 5}, Product{3, 1, 4}, Product{129, 33, 65},
                                           Product{0, 4, 4}, Product{4, 0, 4}, Product{4, 4, 0}));

TEST(Gemm, ExtentsThatDisagreeAreRefused) {
  Stream stream;
  Operand<float> a(2, 3), b(4, 5), c(2, 5);
  EXPECT_THROW(gemm(stream, a, no, b, no, 0.0f, c), InternalError);
}

TEST(Gemm, LibraryNamesItself) { EXPECT_STRNE(gemm_library(), ""); }

// Rows per group: none, one group, single rows, empty groups at every place, whole tiles, a remainder of one row.
const std::vector<Offsets> row_counts = {{},
                                         {5},
                                         {1},
                                         {0, 0},
                                         {0, 1, 0, 7, 0},
                                         {row_tile, 2 * row_tile, row_tile + 1},
                                         {3, 2 * row_tile + 1, 0, row_tile - 1}};

Offsets offsets_of(const Offsets& counts) {
  Offsets offsets{0};
  for (const std::int64_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

std::int64_t nonempty(const Offsets& counts) {
  return std::ssize(counts) - std::count(counts.begin(), counts.end(), 0);
}

constexpr std::int64_t K = 19, N = 34;

class GroupedGemm : public TestWithParam<Offsets> {
 protected:
  Offsets counts = GetParam(), offsets = offsets_of(counts);
  std::int64_t rows = offsets.back(), groups = std::ssize(counts);
  Stream stream;
};

TEST_P(GroupedGemm, AgreesWithTheReferenceAndChargesRowsAndUsedWeights) {
  for (const Transpose t : {no, yes}) {
    const Operand<float> a = random_operand(rows, t == yes ? N : K, 1), w = random_operand(groups * K, N, 2);
    Operand<float> c(rows, t == yes ? K : N, NAN);
    Operand<double> expected(c);
    grouped_gemm(stream, a, offsets, w, t, c);
    reference::grouped_gemm(Operand<double>(a), offsets, Operand<double>(w), t, expected);
    expect_close(c, expected, tolerance);
    EXPECT_EQ(stream.take(), (Work{Flops(2 * rows * K * N), Bytes(4 * (rows * (K + N) + nonempty(counts) * K * N))}));
  }
}

TEST_P(GroupedGemm, WeightGradientAgreesWithTheReferenceAndChargesTouchedWeightsTwice) {
  const Operand<float> a = random_operand(rows, K, 1), b = random_operand(rows, N, 2);
  Operand<float> dw = random_operand(groups * K, N, 3);
  Operand<double> expected(dw);
  grouped_gemm_weight_gradient(stream, a, b, offsets, dw);
  reference::grouped_gemm_weight_gradient(Operand<double>(a), Operand<double>(b), offsets, expected);
  expect_close(dw, expected, tolerance);
  EXPECT_EQ(stream.take(), (Work{Flops(2 * rows * K * N), Bytes(4 * (rows * (K + N) + 2 * nonempty(counts) * K * N))}));
}

TEST_P(GroupedGemm, RepeatsBitForBitAtAnyAddress) {
  const Operand<float> a = random_operand(rows, K, 1), w = random_operand(groups * K, N, 2),
                       b = random_operand(rows, N, 3);
  Operand<float> c(rows, N), dw(groups * K, N), c_shifted(rows, N, 0.0f, 5), dw_shifted(groups * K, N, 0.0f, 3);
  grouped_gemm(stream, a, offsets, w, no, c);
  grouped_gemm_weight_gradient(stream, a, b, offsets, dw);
  const Operand<float> a_shifted(a, 7), w_shifted(w, 1), b_shifted(b, 11);
  grouped_gemm(stream, a_shifted, offsets, w_shifted, no, c_shifted);
  grouped_gemm_weight_gradient(stream, a_shifted, b_shifted, offsets, dw_shifted);
  expect_same_bits(c, c_shifted);
  expect_same_bits(dw, dw_shifted);
}

INSTANTIATE_TEST_SUITE_P(Ops, GroupedGemm, ::testing::ValuesIn(row_counts));

TEST(GroupedGemmSlices, OfWholeTilesGiveTheBitsOfTheWhole) {
  const Offsets counts{2 * row_tile + 1, 3 * row_tile, 0, row_tile + 17}, offsets = offsets_of(counts);
  const std::int64_t rows = offsets.back(), groups = std::ssize(counts), k = 96, n = 80;
  const Operand<float> a = random_operand(rows, k, 1), b = random_operand(rows, n, 2),
                       w = random_operand(groups * k, n, 3);
  Operand<float> whole(rows, n), sliced(rows, n, NAN), dw_whole = random_operand(groups * k, n, 4),
                                                       dw_sliced = dw_whole;
  Stream stream;
  grouped_gemm(stream, a, offsets, w, no, whole);
  grouped_gemm_weight_gradient(stream, a, b, offsets, dw_whole);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t row = offsets[g]; row < offsets[g + 1]; row += 2 * row_tile) {  // slices of two tiles
      const std::int64_t count = std::min(2 * row_tile, offsets[g + 1] - row);
      const Offsets slice{0, count};
      const auto a_slice = a.view().slice(row, count);
      grouped_gemm(stream, a_slice, slice, w.view().slice(g * k, k), no, sliced.view().slice(row, count));
      grouped_gemm_weight_gradient(stream, a_slice, b.view().slice(row, count), slice,
                                   dw_sliced.view().slice(g * k, k));
    }
  expect_same_bits(whole, sliced);
  expect_same_bits(dw_whole, dw_sliced);
}

// Long enough sums that a library's matrix-vector path adds in another order.
TEST(GroupedGemmSlices, ASingleRowHasTheBitsItHasBesideARowOfZeros) {
  constexpr std::int64_t k = 512, n = 48;
  const Operand<float> w = random_operand(k, n, 1), row = random_operand(1, k, 2), d = random_operand(1, n, 3);
  Operand<float> pair(2, k), d_pair(2, n), one(1, n), two(2, n), dw_one(k, n), dw_two(k, n);
  std::copy_n(row.data(), k, pair.data());
  std::copy_n(d.data(), n, d_pair.data());
  Stream stream;
  grouped_gemm(stream, row, Offsets{0, 1}, w, no, one);
  grouped_gemm(stream, pair, Offsets{0, 2}, w, no, two);
  grouped_gemm_weight_gradient(stream, row, d, Offsets{0, 1}, dw_one);
  grouped_gemm_weight_gradient(stream, pair, d_pair, Offsets{0, 2}, dw_two);
  for (std::int64_t j = 0; j < n; ++j) EXPECT_EQ(one[j], two[j]) << j;
  expect_same_bits(dw_one, dw_two);
}

TEST(GroupedGemmOffsets, OutsideTheMatrixAreRefused) {
  Stream stream;
  Operand<float> a(4, 2), w(4, 3), c(4, 3);
  EXPECT_THROW(grouped_gemm(stream, a, Offsets{0, 3, 5}, w, no, c), InternalError);
  EXPECT_THROW(grouped_gemm(stream, a, Offsets{0, 3, 2}, w, no, c), InternalError);
}

}  // namespace
}  // namespace spillway::device::testing
