#include "run/calibrate_statistics.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spillway {
namespace {

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

SampleSummary summarize(std::vector<double> values) {
  ensure(!values.empty(), "a summary of no measurements");
  std::sort(values.begin(), values.end());
  const double median = quantile(values, 0.5);
  return {median, (quantile(values, 0.75) - quantile(values, 0.25)) / median, values.back(),
          static_cast<int>(values.size())};
}

SampleSummary over_parts(std::span<const SampleSummary> parts) {
  std::vector<double> medians;
  int count = 0;
  double best = 0;
  for (const SampleSummary& part : parts) {
    medians.push_back(part.median);
    count += part.count;
    best = std::max(best, part.best);
  }
  SampleSummary all = summarize(std::move(medians));
  all.count = count;
  all.best = best;
  return all;
}

double rate_of_equal_parts(std::span<const SampleSummary> parts) {
  ensure(!parts.empty(), "a rate of no measurements");
  double seconds = 0;
  for (const SampleSummary& part : parts) seconds += 1 / part.median;
  return static_cast<double>(parts.size()) / seconds;
}

MessageFit fit_messages(std::span<const MessageTime> times) {
  // minimise the sum of ((latency + slope x - t) / t)^2: sums weighted with 1 / t^2
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const MessageTime& m : times) {
    const auto x = static_cast<double>(m.bytes.value);
    const double t = m.seconds.value, weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double determinant = w * wxx - wx * wx;
  ensure(times.size() >= 2 && determinant > 1e-12 * w * wxx, "a line through {} message times of one size",
         times.size());
  double slope = (w * wxt - wx * wt) / determinant, latency = (wt - slope * wx) / w;
  if (latency < 0 || slope <= 0) {
    latency = 0;
    slope = wxt / wxx;
  }
  MessageFit fit{Seconds(latency), 1 / slope, 0};
  for (const MessageTime& m : times)
    fit.error = std::max(fit.error, std::abs(latency + slope * static_cast<double>(m.bytes.value) - m.seconds.value) /
                                        m.seconds.value);
  return fit;
}

}  // namespace spillway
