#include "device/gemm.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "device/host/strided_gemm.hpp"

#if defined(SPILLWAY_GEMM_ONEDNN)
#include <dnnl.h>
#else
#include <cblas.h>
#endif

namespace spillway::device {
namespace {

struct Extents {
  std::int64_t m, n, k;
};

#if defined(SPILLWAY_GEMM_ONEDNN)
void library_product(Extents e, StridedMatrix<const float> a, Transpose transpose_a, StridedMatrix<const float> b,
                     Transpose transpose_b, float beta, StridedMatrix<float> c) {
  const auto letter = [](Transpose t) { return t == Transpose::yes ? 'T' : 'N'; };
  const dnnl_status_t status = dnnl_sgemm(letter(transpose_a), letter(transpose_b), e.m, e.n, e.k, 1.0f, a.data,
                                          a.stride, b.data, b.stride, beta, c.data, c.stride);
  ensure(status == dnnl_success, "dnnl_sgemm failed with status {} at m={} n={} k={}", static_cast<int>(status), e.m,
         e.n, e.k);
}
#else
int cblas_extent(std::int64_t value) {
  ensure(value <= std::numeric_limits<int>::max(), "a matrix extent of {} does not fit the 32-bit int of CBLAS", value);
  return static_cast<int>(value);
}

void library_product(Extents e, StridedMatrix<const float> a, Transpose transpose_a, StridedMatrix<const float> b,
                     Transpose transpose_b, float beta, StridedMatrix<float> c) {
  const auto name = [](Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; };
  cblas_sgemm(CblasRowMajor, name(transpose_a), name(transpose_b), cblas_extent(e.m), cblas_extent(e.n),
              cblas_extent(e.k), 1.0f, a.data, cblas_extent(a.stride), b.data, cblas_extent(b.stride), beta, c.data,
              cblas_extent(c.stride));
}
#endif

template <class T>
StridedMatrix<T> strided(Matrix<T> x) {
  return {x.data, x.rows, x.cols, x.cols};
}

/// One row and a row of zeros below it.
std::vector<float> padded_row(Matrix<const float> x) {
  std::vector<float> padded(static_cast<std::size_t>(2 * x.cols), 0.0f);
  std::copy_n(x.data, x.cols, padded.begin());
  return padded;
}

void product(Matrix<const float> a, Transpose transpose_a, Matrix<const float> b, Transpose transpose_b, float beta,
             Matrix<float> c) {
  strided_gemm(strided(a), transpose_a, strided(b), transpose_b, beta, strided(c));
}

void tile_product(Matrix<const float> a, Matrix<const float> w, Transpose transpose_w, Matrix<float> c) {
  if (a.rows != 1) return product(a, Transpose::no, w, transpose_w, 0.0f, c);
  const std::vector<float> padded_a = padded_row(a);
  std::vector<float> padded_c(static_cast<std::size_t>(2 * c.cols));
  product({padded_a.data(), 2, a.cols}, Transpose::no, w, transpose_w, 0.0f, {padded_c.data(), 2, c.cols});
  std::copy_n(padded_c.begin(), c.cols, c.data);
}

void tile_weight_gradient(Matrix<const float> a, Matrix<const float> b, Matrix<float> dw) {
  if (a.rows != 1) return product(a, Transpose::yes, b, Transpose::no, 1.0f, dw);
  const std::vector<float> padded_a = padded_row(a), padded_b = padded_row(b);
  product({padded_a.data(), 2, a.cols}, Transpose::yes, {padded_b.data(), 2, b.cols}, Transpose::no, 1.0f, dw);
}

/// What a grouped product needs to know of its groups.
struct Groups {
  std::int64_t count = 0, nonempty = 0, rows = 0;
};

Groups examine(RowOffsets offsets, std::int64_t rows, std::int64_t weight_rows) {
  Groups groups{std::max<std::int64_t>(std::ssize(offsets) - 1, 0)};
  for (std::int64_t g = 0; g < groups.count; ++g) {
    ensure(offsets[g] >= 0 && offsets[g] <= offsets[g + 1] && offsets[g + 1] <= rows,
           "group {} owns rows [{}, {}) of a matrix of {} rows", g, offsets[g], offsets[g + 1], rows);
    groups.rows += offsets[g + 1] - offsets[g];
    groups.nonempty += offsets[g + 1] > offsets[g];
  }
  ensure(groups.count == 0 ? weight_rows == 0 : weight_rows % groups.count == 0,
         "{} weight rows do not divide over {} groups", weight_rows, groups.count);
  return groups;
}

/// Runs body(group, first row, rows of the tile) over all tiles, rows ascending within a group.
template <class Body>
void for_each_tile(RowOffsets offsets, const Body& body) {
  for (std::int64_t g = 0; g + 1 < std::ssize(offsets); ++g)
    for (std::int64_t row = offsets[g]; row < offsets[g + 1]; row += row_tile)
      body(g, row, std::min(row_tile, offsets[g + 1] - row));
}

Work grouped_work(const Groups& groups, Extents per_row, std::int64_t weight_passes) {
  const std::int64_t weight = per_row.k * per_row.n;
  return {Flops(2 * groups.rows * weight),
          Bytes((groups.rows * (per_row.k + per_row.n) + weight_passes * groups.nonempty * weight) *
                static_cast<std::int64_t>(sizeof(float)))};
}

}  // namespace

void strided_gemm(StridedMatrix<const float> a, Transpose transpose_a, StridedMatrix<const float> b,
                  Transpose transpose_b, float beta, StridedMatrix<float> c) {
  const bool ta = transpose_a == Transpose::yes, tb = transpose_b == Transpose::yes;
  const Extents e{c.rows, c.cols, ta ? a.rows : a.cols};
  ensure((ta ? a.cols : a.rows) == e.m && (tb ? b.cols : b.rows) == e.k && (tb ? b.rows : b.cols) == e.n,
         "product of a [{}, {}]{} and b [{}, {}]{} into c [{}, {}]: extents disagree", a.rows, a.cols, ta ? "^T" : "",
         b.rows, b.cols, tb ? "^T" : "", c.rows, c.cols);
  if (e.m == 0 || e.n == 0) return;
  if (e.k > 0) return library_product(e, a, transpose_a, b, transpose_b, beta, c);
  if (beta == 0.0f)
    for (std::int64_t i = 0; i < e.m; ++i) std::fill_n(c.data + i * c.stride, e.n, 0.0f);
}

void gemm(Stream& stream, Matrix<const float> a, Transpose transpose_a, Matrix<const float> b, Transpose transpose_b,
          float beta, Matrix<float> c) {
  const std::int64_t k = transpose_a == Transpose::yes ? a.rows : a.cols;
  product(a, transpose_a, b, transpose_b, beta, c);
  stream.charge({Flops(2 * c.size() * k), a.bytes() + b.bytes() + c.bytes() * (beta == 0.0f ? 1 : 2)});
}

void grouped_gemm(Stream& stream, Matrix<const float> a, RowOffsets offsets, Matrix<const float> w,
                  Transpose transpose_w, Matrix<float> c) {
  ensure(a.rows == c.rows, "grouped product of {} rows into {} rows", a.rows, c.rows);
  const Groups groups = examine(offsets, a.rows, w.rows);
  if (groups.count == 0) return;
  const std::int64_t k = w.rows / groups.count;
  for_each_tile(offsets, [&](std::int64_t g, std::int64_t row, std::int64_t rows) {
    tile_product(a.slice(row, rows), w.slice(g * k, k), transpose_w, c.slice(row, rows));
  });
  stream.charge(grouped_work(groups, {1, w.cols, k}, 1));
}

void grouped_gemm_weight_gradient(Stream& stream, Matrix<const float> a, Matrix<const float> b, RowOffsets offsets,
                                  Matrix<float> dw) {
  ensure(a.rows == b.rows, "weight gradient of {} and {} rows", a.rows, b.rows);
  const Groups groups = examine(offsets, a.rows, dw.rows);
  if (groups.count == 0) return;
  const std::int64_t k = dw.rows / groups.count;
  for_each_tile(offsets, [&](std::int64_t g, std::int64_t row, std::int64_t rows) {
    tile_weight_gradient(a.slice(row, rows), b.slice(row, rows), dw.slice(g * k, k));
  });
  stream.charge(grouped_work(groups, {1, dw.cols, k}, 2));
}

const char* gemm_library() {
#if defined(SPILLWAY_GEMM_ONEDNN)
  static const std::string name = [] {
    const dnnl_version_t* v = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", v->major, v->minor, v->patch);
  }();
  return name.c_str();
#elif defined(OPENBLAS_VERSION)
  return OPENBLAS_VERSION;
#else
  return "CBLAS";
#endif
}

}  // namespace spillway::device
