#pragma once
// Reductions over a row in an order that depends on the position in the row alone: they vectorise without
// reassociation, and a row's result is the same wherever the row lies in memory.
#include <Kokkos_Core.hpp>
#include <cstdint>

namespace spillway::device::ops {

inline constexpr std::int64_t lanes = 16;

/// Folds value(0), ..., value(n - 1) into `lanes` partial results (index modulo lanes), then those by halves.
template <class Value, class Combine>
KOKKOS_INLINE_FUNCTION float lane_reduce(std::int64_t n, float identity, const Value& value, const Combine& combine) {
  float partial[lanes];
  for (std::int64_t l = 0; l < lanes; ++l) partial[l] = identity;
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
#pragma omp simd
    for (std::int64_t l = 0; l < lanes; ++l) partial[l] = combine(partial[l], value(j + l));
  }
  for (std::int64_t l = 0; j + l < n; ++l) partial[l] = combine(partial[l], value(j + l));
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) partial[l] = combine(partial[l], partial[l + half]);
  return partial[0];
}

/// Sum of term(j) for j in [0, n). The terms may also write: each is evaluated once.
template <class Term>
KOKKOS_INLINE_FUNCTION float lane_sum(std::int64_t n, const Term& term) {
  return lane_reduce(n, 0.0f, term, [](float a, float b) { return a + b; });
}

/// Largest of value(j) for j in [0, n), at least `lowest`.
template <class Value>
KOKKOS_INLINE_FUNCTION float lane_max(std::int64_t n, float lowest, const Value& value) {
  return lane_reduce(n, lowest, value, [](float a, float b) { return a < b ? b : a; });
}

}  // namespace spillway::device::ops
