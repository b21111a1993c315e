#include "device/ops/adam.hpp"

#include <cmath>

#include "device/ops/blocks.hpp"

namespace spillway::device::ops {

void adam_step(Stream& stream, const AdamOptions& options, Matrix<float> parameters, Matrix<const float> gradients,
               Matrix<float> m, Matrix<float> v) {
  expect_shape("adam: gradients", gradients, parameters.rows, parameters.cols);
  expect_shape("adam: m", m, parameters.rows, parameters.cols);
  expect_shape("adam: v", v, parameters.rows, parameters.cols);
  ensure(options.step >= 1, "adam: step {} is below 1, so the bias correction would divide by zero", options.step);
  const auto step = static_cast<double>(options.step);
  const auto beta1 = static_cast<float>(options.beta1), rest1 = static_cast<float>(1.0 - options.beta1);
  const auto beta2 = static_cast<float>(options.beta2), rest2 = static_cast<float>(1.0 - options.beta2);
  const auto rate = static_cast<float>(options.learning_rate / (1.0 - std::pow(options.beta1, step)));
  const auto correction2 = static_cast<float>(1.0 / (1.0 - std::pow(options.beta2, step)));
  const auto epsilon = static_cast<float>(options.epsilon);
  stream.charge({{}, gradients.bytes() + (parameters.bytes() + m.bytes() + v.bytes()) * 2});
  parallel_blocks(
      stream, "adam_step", parameters.size(), element_block, KOKKOS_LAMBDA(std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) {
          const float g = gradients.data[i];
          const float mean = beta1 * m.data[i] + rest1 * g;
          const float square = beta2 * v.data[i] + rest2 * (g * g);
          m.data[i] = mean;
          v.data[i] = square;
          parameters.data[i] -= rate * mean / (std::sqrt(square * correction2) + epsilon);
        }
      });
}

}  // namespace spillway::device::ops
