#pragma once
// Quantities with a unit in their type: bytes, floating-point operations, seconds.
#include <compare>
#include <cstdint>

namespace spillway {

/// A number with a unit. Adding, comparing and scaling keep the unit; a quotient of two is a plain number.
template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  constexpr Quantity() = default;
  constexpr explicit Quantity(Rep v) : value(v) {}
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, Rep s) { return Quantity(a.value * s); }
  friend constexpr Quantity operator*(Rep s, Quantity a) { return Quantity(a.value * s); }
  friend constexpr double operator/(Quantity a, Quantity b) {
    return static_cast<double>(a.value) / static_cast<double>(b.value);
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;
using Flops = Quantity<struct FlopsTag, std::int64_t>;
using Seconds = Quantity<struct SecondsTag, double>;

/// `bytes` rounded up to a multiple of `alignment`.
constexpr Bytes round_up(Bytes bytes, Bytes alignment) {
  return Bytes((bytes.value + alignment.value - 1) / alignment.value * alignment.value);
}

constexpr double mebibytes(Bytes bytes) { return static_cast<double>(bytes.value) / (1024.0 * 1024.0); }

}  // namespace spillway
