#pragma once
// Adam as the formulas read, in double; arguments as in adam.hpp.
#include <cmath>

#include "device/ops/adam.hpp"

namespace spillway::device::ops::reference {

inline void adam_step(const AdamOptions& options, Matrix<double> parameters, Matrix<const double> gradients,
                      Matrix<double> m, Matrix<double> v) {
  const auto step = static_cast<double>(options.step);
  for (std::int64_t i = 0; i < parameters.size(); ++i) {
    const double g = gradients.data[i];
    m.data[i] = options.beta1 * m.data[i] + (1 - options.beta1) * g;
    v.data[i] = options.beta2 * v.data[i] + (1 - options.beta2) * g * g;
    const double mean = m.data[i] / (1 - std::pow(options.beta1, step));
    const double square = v.data[i] / (1 - std::pow(options.beta2, step));
    parameters.data[i] -= options.learning_rate * mean / (std::sqrt(square) + options.epsilon);
  }
}

}  // namespace spillway::device::ops::reference
