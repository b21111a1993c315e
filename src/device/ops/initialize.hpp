#pragma once
// Initial values of parameters.
#include <cstdint>

#include "device/matrix.hpp"

namespace spillway::device::ops {

/// Element i becomes a normal number with mean 0, a function of (key, first_index + i) alone: the same parameter gets
/// the same value at any layout. Uncharged.
void initialize_normal(Matrix<float> x, std::uint64_t key, double standard_deviation, std::uint64_t first_index);

}  // namespace spillway::device::ops
