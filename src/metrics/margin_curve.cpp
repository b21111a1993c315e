#include "metrics/margin_curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace spillway {
namespace {

constexpr int bar_columns = 40;

std::string bar(double value, double most) {
  return std::string(static_cast<std::size_t>(std::lround(bar_columns * value / most)), '#');
}

}  // namespace

std::string margin_text(const std::vector<MarginPoint>& curve, const std::vector<MarginReference>& references) {
  if (curve.empty()) return {};
  double most = 1;
  std::size_t width = 6;
  for (const MarginPoint& p : curve) {
    most = std::max(most, p.tokens_per_second.value_or(0));
    width = std::max(width, p.policy.size());
  }
  for (const MarginReference& r : references) {
    most = std::max(most, r.tokens_per_second);
    width = std::max(width, r.policy.size());
  }
  std::string text = fmt::format(
      "static plans by the load they are made for: projected, phantom data\n{:<{}}  {:>6}  {:>12}  {:>5}  {:>8}\n",
      "policy", width, "margin", "tokens/s", "OOMs", "restarts");
  for (const MarginPoint& p : curve)
    text += p.tokens_per_second
                ? fmt::format("{:<{}}  {:>6.2f}  {:>12.1f}  {:>5}  {:>8}  {}\n", p.policy, width, p.margin,
                              *p.tokens_per_second, p.oom_events, p.restarts, bar(*p.tokens_per_second, most))
                : fmt::format("{:<{}}  {:>6.2f}  {:>12}\n", p.policy, width, p.margin, "does not fit");
  for (const MarginReference& r : references)
    text += fmt::format("{:<{}}  {:>6}  {:>12.1f}  {:>5}  {:>8}  {}\n", r.policy, width, "-", r.tokens_per_second, "",
                        "", bar(r.tokens_per_second, most));
  return text;
}

}  // namespace spillway
