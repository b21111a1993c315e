#include "device/ops/embedding.hpp"

#include <cstring>

#include "device/ops/blocks.hpp"

namespace spillway::device::ops {
namespace {

Bytes token_bytes(std::int64_t n) { return Bytes(n * static_cast<std::int64_t>(sizeof(std::int32_t))); }

}  // namespace

void embedding_forward(Stream& stream, const std::int32_t* tokens, Matrix<const float> table, Matrix<float> out,
                       std::int64_t first_id) {
  expect_shape("embedding: out", out, out.rows, table.cols);
  const auto row_bytes = static_cast<std::size_t>(table.cols) * sizeof(float);
  const Work work{{}, token_bytes(out.rows) + out.bytes() * 2};
  stream.parallel_for(
      "embedding_forward", out.rows, work, KOKKOS_LAMBDA(std::int64_t s) {
        const std::int64_t id = tokens[s] - first_id;
        if (id >= 0 && id < table.rows)
          std::memcpy(out.row(s), table.row(id), row_bytes);
        else
          std::memset(out.row(s), 0, row_bytes);
      });
}

void embedding_backward(Stream& stream, const std::int32_t* tokens, Matrix<const float> d_out, Matrix<float> d_table,
                        std::int64_t first_id) {
  expect_shape("embedding: d_table", d_table, d_table.rows, d_out.cols);
  stream.charge({{}, token_bytes(d_out.rows) + d_out.bytes() * 3});
  parallel_blocks(
      stream, "embedding_backward", d_out.cols, column_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
        for (std::int64_t s = 0; s < d_out.rows; ++s) {
          const std::int64_t id = tokens[s] - first_id;
          if (id < 0 || id >= d_table.rows) continue;
          const float* d = d_out.row(s);
          float* sum = d_table.row(id);
#pragma omp simd
          for (std::int64_t j = begin; j < end; ++j) sum[j] += d[j];
        }
      });
}

}  // namespace spillway::device::ops
