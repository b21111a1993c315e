#pragma once
// Operands of operator tests: matrices that own their values, comparisons, finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "base/random.hpp"
#include "device/matrix.hpp"
#include "device/stream.hpp"

namespace spillway::device::testing {

/// A matrix that owns its values; they start `shift` elements after the start of the allocation.
template <class T>
class Operand {
 public:
  Operand(std::int64_t rows, std::int64_t cols, T value = T{}, std::int64_t shift = 0)
      : values_(static_cast<std::size_t>(rows * cols + shift), value), rows_(rows), cols_(cols), shift_(shift) {}

  /// The same values as another type, at another address.
  template <class U>
  explicit Operand(const Operand<U>& other, std::int64_t shift = 0) : Operand(other.rows(), other.cols(), T{}, shift) {
    for (std::int64_t i = 0; i < size(); ++i) (*this)[i] = static_cast<T>(other[i]);
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size() const { return rows_ * cols_; }
  T& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i + shift_)]; }
  const T& operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i + shift_)]; }
  T* data() { return values_.data() + shift_; }
  const T* data() const { return values_.data() + shift_; }
  Matrix<T> view() { return {data(), rows_, cols_}; }
  Matrix<const T> view() const { return {data(), rows_, cols_}; }
  operator Matrix<T>() { return view(); }
  operator Matrix<const T>() const { return view(); }
  Bytes bytes() const { return view().bytes(); }

 private:
  std::vector<T> values_;
  std::int64_t rows_, cols_, shift_;
};

/// Normal numbers, a function of the key.
inline Operand<float> random_operand(std::int64_t rows, std::int64_t cols, std::uint64_t key) {
  Operand<float> x(rows, cols);
  const CounterRandom random(key);
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return x;
}

/// [rows, k] distinct numbers below n in every row.
inline Operand<std::int32_t> random_choices(std::int64_t rows, std::int64_t k, std::int64_t n, std::uint64_t key) {
  Operand<std::int32_t> choices(rows, k);
  const CounterRandom random(key);
  for (std::int64_t t = 0; t < rows; ++t) {
    std::vector<std::int32_t> left(static_cast<std::size_t>(n));
    for (std::size_t e = 0; e < left.size(); ++e) left[e] = static_cast<std::int32_t>(e);
    for (std::int64_t j = 0; j < k; ++j) {
      const auto pick = random.below(static_cast<std::uint64_t>(t * k + j), left.size());
      choices[t * k + j] = left[pick];
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(pick));
    }
  }
  return choices;
}

/// |actual - expected| <= tolerance (1 + |expected|), element by element.
template <class T>
void expect_close(const Operand<T>& actual, const Operand<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::int64_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

inline void expect_same_bits(const Operand<float>& a, const Operand<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::int64_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << "element " << i << ": " << a[i] << " and " << b[i];
}

/// Sum of the products of corresponding elements: a loss whose gradient with respect to x is y.
inline double inner(const Operand<double>& x, const Operand<double>& y) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

/// Central differences of loss() by every element of x agree with `gradient`.
inline void expect_gradient(Operand<double>& x, const Operand<double>& gradient, const std::function<double()>& loss) {
  constexpr double step = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + step;
    const double above = loss();
    x[i] = before - step;
    const double below = loss();
    x[i] = before;
    ASSERT_NEAR((above - below) / (2 * step), gradient[i], 1e-7 * (1 + std::abs(gradient[i]))) << "element " << i;
  }
}

}  // namespace spillway::device::testing
