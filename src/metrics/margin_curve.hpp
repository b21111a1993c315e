#pragma once
// What static plans cost as a function of the load they are planned for.
#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// One static policy planned for one margin, projected over the workload.
struct MarginPoint {
  std::string policy;
  double margin = 1;                        ///< x balance
  std::optional<double> tokens_per_second;  ///< empty: does not fit at this load, or nothing to fall back to
  long long oom_events = 0, restarts = 0;
};

/// Tables and bars, policy by policy; `references` are policies without a margin: name and tokens per second.
struct MarginReference {
  std::string policy;
  double tokens_per_second = 0;
};
std::string margin_text(const std::vector<MarginPoint>& curve, const std::vector<MarginReference>& references);

}  // namespace spillway
