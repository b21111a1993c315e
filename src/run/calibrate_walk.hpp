#pragma once
// Cold operands for measurements.
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace spillway {

/// Memory beyond the caches, handed out piece after piece and then from the start again: whoever walks through it finds
/// his operands cold, as most of a run's tensors are.
class Walk {
 public:
  explicit Walk(Bytes total) : data_(static_cast<std::size_t>(total.value) / sizeof(float), 1.0f) {}

  /// `values` floats; no more than the whole.
  float* next(std::int64_t values) {
    if (at_ + values > static_cast<std::int64_t>(data_.size())) at_ = 0;
    float* const piece = data_.data() + at_;
    at_ += values;
    return piece;
  }

 private:
  std::vector<float> data_;
  std::int64_t at_ = 0;
};

}  // namespace spillway
