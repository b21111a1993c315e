#pragma once
// Algorithm 1 of BaGuaLu-2: how much of the memory that is left a micro-batch may take.
#include "base/units.hpp"

namespace spillway {

/// What is known when a micro-batch is about to go forward.
struct BudgetState {
  Bytes available;                   ///< M_max - M_used: what activations may still take
  Bytes least;                       ///< M0: a micro-batch under full recompute
  int forwards_before_backward = 1;  ///< r, this micro-batch included: 1 in steady state
};

/// (available - r M0) / r + M0: an equal share for each of the r micro-batches that go forward before memory is freed
/// again. Published for warm-up; with r = 1 it is the steady state's M_max - M_used. Never below M0.
constexpr Bytes activation_budget(const BudgetState& s) {
  const std::int64_t r = s.forwards_before_backward;
  const std::int64_t spare = s.available.value - r * s.least.value;
  return Bytes((spare > 0 ? spare / r : 0) + s.least.value);
}

}  // namespace spillway
