#include "run/intervals.hpp"

#include <algorithm>

namespace spillway {

void sort_by_start(std::vector<device::Interval>& intervals) {
  std::ranges::sort(intervals, {}, [](const device::Interval& i) { return i.start; });
}

Seconds common_length(const std::vector<device::Interval>& a, const std::vector<device::Interval>& b) {
  Seconds common;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    common += std::max(Seconds(0), std::min(a[i].end, b[j].end) - std::max(a[i].start, b[j].start));
    ++(a[i].end < b[j].end ? i : j);
  }
  return common;
}

Seconds union_length(const std::vector<device::Interval>& intervals) {
  Seconds length, covered;
  for (const device::Interval& i : intervals) {
    const Seconds from = std::max(i.start, covered);
    if (i.end <= from) continue;
    length += i.end - from;
    covered = i.end;
  }
  return length;
}

}  // namespace spillway
