#pragma once
// Counter-based random numbers: a value is a function of (key, counter), so any rank can draw any number of the
// whole job without drawing the ones before it. Philox4x32-10 (Salmon et al., SC11).
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

namespace spillway {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// One block of Philox4x32 with ten rounds.
constexpr PhiloxBlock philox(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// Mixes values into one 64-bit key; the order matters. Each step is the finalizer of SplitMix64.
template <class... Ints>
constexpr std::uint64_t mix(std::uint64_t first, Ints... rest) {
  std::uint64_t h = first;
  const auto step = [&h](std::uint64_t v) {
    h += v + 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    h ^= h >> 31;
  };
  step(0);
  (step(static_cast<std::uint64_t>(rest)), ...);
  return h;
}

/// A stream of random numbers addressed by index.
class CounterRandom {
 public:
  template <class... Ints>
  constexpr explicit CounterRandom(std::uint64_t seed, Ints... purpose) : key_(mix(seed, purpose...)) {}

  constexpr std::uint64_t bits(std::uint64_t index) const {
    const auto b = block(index);
    return std::uint64_t{b[0]} << 32 | b[1];
  }
  /// Uniform in [0, 1).
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }
  /// Uniform in {0, ..., n-1}; n > 0. The bias of the multiplication method is below n / 2^64.
  constexpr std::uint64_t below(std::uint64_t index, std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<Wide>(bits(index)) * n) >> 64);
  }
  /// Standard normal (Box-Muller).
  double normal(std::uint64_t index) const {
    const auto b = block(index);
    const double u = (b[0] + 0.5) * 0x1.0p-32;
    const double v = b[1] * 0x1.0p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  __extension__ typedef unsigned __int128 Wide;  // GCC's and Clang's; the standard has no 128-bit integer

  constexpr PhiloxBlock block(std::uint64_t index) const {
    return philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0},
                  {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
  }
  std::uint64_t key_;
};

}  // namespace spillway
