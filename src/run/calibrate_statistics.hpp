#pragma once
// From repeated measurements to constants: medians with their spread, and the line through message times. Pure.
#include <span>
#include <vector>

#include "base/units.hpp"

namespace spillway {

struct SampleSummary {
  double median = 0;
  double spread = 0;  ///< distance of the quartiles / median
  double best = 0;    ///< the largest
  int count = 0;
};
/// Throws InternalError for no values.
SampleSummary summarize(std::vector<double> values);
/// Over the medians of `parts`; the spread is theirs, the count is that of all values behind them.
SampleSummary over_parts(std::span<const SampleSummary> parts);

/// Rate of work of which every part is an equal share, each done at its median rate.
double rate_of_equal_parts(std::span<const SampleSummary> parts);

/// A message of `bytes` that travel took `seconds`.
struct MessageTime {
  Bytes bytes;
  Seconds seconds;
};
/// seconds = latency + bytes / bandwidth.
struct MessageFit {
  Seconds latency;
  double bandwidth = 0;  ///< bytes/s
  double error = 0;      ///< largest relative distance of a point from the line
};
/// Least squares of the relative errors, so that small messages count as much as large ones. Where noise would make the
/// latency or the slope negative, the line goes through the origin. Throws InternalError without two different sizes.
MessageFit fit_messages(std::span<const MessageTime> times);

}  // namespace spillway
