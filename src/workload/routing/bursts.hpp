#pragma once
// When bursts happen: stratified, so that the asked share of iterations is met and not left to chance.
#include <cstdint>
#include <optional>

namespace spillway {

/// Period j covers iterations [round(j * length / fraction), round((j + 1) * length / fraction)) and holds one burst of
/// `length` iterations at a seeded offset. Rounding the boundaries instead of the length keeps any whole number of
/// periods within half an iteration of the asked share. A fraction of 0 means no bursts.
class BurstSchedule {
 public:
  BurstSchedule(std::uint64_t seed, std::int64_t length, double fraction)
      : seed_(seed), length_(length), fraction_(fraction) {}

  /// The number of the burst that the iteration lies in.
  std::optional<std::int64_t> burst(std::int64_t iteration) const;
  /// First iteration of a period.
  std::int64_t period_start(std::int64_t period) const;

 private:
  std::uint64_t seed_;
  std::int64_t length_;
  double fraction_;
};

}  // namespace spillway
