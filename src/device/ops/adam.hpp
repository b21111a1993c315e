#pragma once
// Adam with bias correction (Kingma and Ba 2015), on any shard of the parameters: an element's result depends on that
// element alone.
#include <cstdint>

#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::ops {

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.95;  ///< decay of the means of the gradient and of its square
  double epsilon = 1e-8;             ///< added to the root of the corrected mean square
  std::int64_t step = 1;             ///< this step's number; the first is 1
};

/// All of one shape; m and v start at 0. Charges gradients + twice parameters, m and v.
void adam_step(Stream& stream, const AdamOptions& options, Matrix<float> parameters, Matrix<const float> gradients,
               Matrix<float> m, Matrix<float> v);

}  // namespace spillway::device::ops
