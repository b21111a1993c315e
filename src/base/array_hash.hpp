#pragma once
// Arrays of numbers as keys of unordered maps.
#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway {

struct ArrayHash {
  template <class Number, std::size_t n>
  std::size_t operator()(const std::array<Number, n>& key) const {
    std::uint64_t h = 0;
    for (const Number k : key) h = (h ^ static_cast<std::uint64_t>(k)) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(h ^ (h >> 29));
  }
};

}  // namespace spillway
