#pragma once
// Arithmetic of when lanes were busy. Lists are in the order of starts.
#include <vector>

#include "device/event.hpp"

namespace spillway {

void sort_by_start(std::vector<device::Interval>& intervals);

/// Seconds common to two lists, each without overlaps.
Seconds common_length(const std::vector<device::Interval>& a, const std::vector<device::Interval>& b);

/// Seconds covered by any interval.
Seconds union_length(const std::vector<device::Interval>& intervals);

}  // namespace spillway
