#pragma once
// What every pipeline stage needs under every policy at several expert loads, and the load at which it stops fitting.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/stage_forecast.hpp"

namespace spillway {

/// The loads that a table covers.
struct LoadAxis {
  std::int64_t balanced = 0;  ///< rows of one MoE layer, micro-batch and rank at balance, k T; 0 in a dense model
  std::int64_t most = 0;      ///< rows that distinct experts allow at most
  std::vector<double> loads;  ///< multiples of balance, ascending
  /// `load` in rows, rounded up.
  std::int64_t rows(double load) const;
  double bound() const;  ///< most / balanced; 1 in a dense model
};
/// 1.0, the margin, 1.15, 1.5, 2.0, 2.6 and the bound, as far as they do not exceed it (the margin always).
LoadAxis load_axis(const MemorySetup& setup);

/// One stage under one policy.
struct StagePeaks {
  std::vector<MemoryPeak> at;         ///< [loads]; empty where there is no forecast
  std::optional<ByteLedger> balance;  ///< peaks by category at balance
  /// Most rows with which it fits: LoadAxis::most if it always does, -1 if not even without rows. Empty without a cap
  /// and where nothing is known.
  std::optional<std::int64_t> rows_that_fit;
  std::optional<Bytes> least;  ///< what a policy that adapts needs, whatever the load
};

struct PolicyPeaks {
  PolicyEntry policy;
  bool obeys_cap = true;
  bool adapts = false;
  bool follows_load = false;  ///< decides differently at different loads
  std::string no_forecast;    ///< why there are no peaks; empty where there are
  std::vector<StagePeaks> stages;

  bool has_bytes() const { return no_forecast.empty() || adapts; }
  Bytes bytes(int stage, std::size_t load) const;  ///< peak at a load, or the least where there is no forecast
  /// Stage with the most bytes, and the one in the middle of the ranking (the smaller of two); the first of equals.
  int worst_stage(std::size_t load) const;
  int ordinary_stage(std::size_t load) const;
  /// Most rows with which every stage fits; empty without a cap and without a forecast.
  std::optional<std::int64_t> rows_that_fit() const;
};

struct MemoryTable {
  LoadAxis axis;
  std::vector<PolicyPeaks> policies;
};

/// Forecasts every policy on every stage. The last rows that fit are searched for, which takes a policy's peak to grow
/// with the load.
MemoryTable memory_table(const MemorySetup& setup, std::span<const PolicyEntry> policies);

}  // namespace spillway
