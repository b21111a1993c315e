#include "plan/memory_table.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spillway {
namespace {

/// A forecast that was made.
struct Tried {
  std::int64_t rows = 0;
  MemoryPeak peak;
};

/// The most rows in [low.rows, high.rows) that fit, between one that fits and one that does not: bisection, with
/// interpolation in between, since peaks are nearly linear in the rows.
std::int64_t last_that_fits(Tried low, Tried high, const StageLimits& limits, StageForecast& forecast) {
  for (bool interpolate = true; high.rows - low.rows > 1; interpolate = !interpolate) {
    const std::int64_t distance = high.rows - low.rows;
    std::int64_t step = distance / 2;
    if (interpolate && high.peak.device > limits.cap)
      step = static_cast<std::int64_t>(static_cast<double>(distance) *
                                       ((limits.cap - low.peak.device) / (high.peak.device - low.peak.device)));
    const std::int64_t rows = low.rows + std::clamp<std::int64_t>(step, 1, distance - 1);
    const Tried next{rows, forecast.peak(rows)};
    (fits(next.peak, limits) ? low : high) = next;
  }
  return low.rows;
}

std::int64_t rows_that_fit(const LoadAxis& axis, const std::vector<MemoryPeak>& at, const StageLimits& limits,
                           StageForecast& forecast) {
  Tried low{-1, {}}, high{axis.most + 1, {}};
  for (std::size_t i = 0; i < at.size(); ++i) {
    const Tried tried{axis.rows(axis.loads[i]), at[i]};
    if (tried.rows > axis.most) continue;  // a margin that no routing reaches
    const bool good = fits(tried.peak, limits);
    if (good && tried.rows > low.rows) low = tried;
    if (!good && tried.rows < high.rows) high = tried;
  }
  if (high.rows > axis.most) return axis.most;
  if (low.rows < 0) {
    low = {0, forecast.peak(0)};
    if (!fits(low.peak, limits)) return -1;
  }
  return last_that_fits(low, high, limits, forecast);
}

std::vector<int> ranked_by_bytes(const PolicyPeaks& policy, std::size_t load) {
  std::vector<int> ranked(policy.stages.size());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](int a, int b) { return policy.bytes(a, load) > policy.bytes(b, load); });
  return ranked;
}

StagePeaks stage_peaks(const MemorySetup& setup, int stage, const LoadAxis& axis, const PolicyPeaks& policy) {
  StagePeaks peaks;
  if (policy.adapts) {
    peaks.least = least_bytes(setup, stage);
    peaks.rows_that_fit = *peaks.least <= setup.limits.cap ? axis.most : -1;
  }
  if (!policy.no_forecast.empty()) return peaks;
  StageForecast forecast(setup, stage, policy.policy);
  peaks.balance = forecast.books(axis.rows(1)).ledger();
  for (const double load : axis.loads) peaks.at.push_back(forecast.peak(axis.rows(load)));
  if (policy.obeys_cap && !policy.adapts) peaks.rows_that_fit = rows_that_fit(axis, peaks.at, setup.limits, forecast);
  return peaks;
}

}  // namespace

std::int64_t LoadAxis::rows(double load) const {
  if (load == bound()) return most;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(balanced) * load));
}

double LoadAxis::bound() const { return balanced == 0 ? 1 : static_cast<double>(most) / static_cast<double>(balanced); }

LoadAxis load_axis(const MemorySetup& setup) {
  const ModelShape& shape = setup.stage.shape;
  const BlockContext any = stage_blocks(setup.stage, 0).front().context;
  LoadAxis axis;
  if (shape.moe_layers() > 0) {
    axis.balanced = any.routed_rows();
    axis.most = most_rows({shape.num_experts, shape.num_experts_per_tok, any.expert_parallel}, any.local_tokens());
  }
  axis.loads = {setup.margin, axis.bound()};
  for (const double load : {1.0, 1.15, 1.5, 2.0, 2.6})
    if (load <= axis.bound()) axis.loads.push_back(load);
  std::sort(axis.loads.begin(), axis.loads.end());
  axis.loads.erase(std::unique(axis.loads.begin(), axis.loads.end()), axis.loads.end());
  return axis;
}

Bytes PolicyPeaks::bytes(int stage, std::size_t load) const {
  const StagePeaks& peaks = stages[stage];
  return peaks.at.empty() ? *peaks.least : peaks.at[load].device;
}

int PolicyPeaks::worst_stage(std::size_t load) const { return ranked_by_bytes(*this, load).front(); }

int PolicyPeaks::ordinary_stage(std::size_t load) const { return ranked_by_bytes(*this, load)[stages.size() / 2]; }

std::optional<std::int64_t> PolicyPeaks::rows_that_fit() const {
  std::optional<std::int64_t> least;
  for (const StagePeaks& stage : stages)
    if (stage.rows_that_fit) least = std::min(*stage.rows_that_fit, least.value_or(*stage.rows_that_fit));
  return least;
}

MemoryTable memory_table(const MemorySetup& setup, std::span<const PolicyEntry> policies) {
  MemoryTable table{load_axis(setup), {}};
  for (const PolicyEntry& entry : policies) {
    const auto policy = entry.make(setup.options);
    PolicyPeaks peaks{entry, policy->obeys_cap(), policy->adapts(), follows_load(*policy), {}, {}};
    const bool asked = std::find(setup.asked.begin(), setup.asked.end(), entry.name) != setup.asked.end();
    if (peaks.follows_load && !asked) peaks.no_forecast = "decides when the load is known, and was not asked";
    for (int stage = 0; stage < setup.stage.grid.pipeline_parallel; ++stage)
      peaks.stages.push_back(stage_peaks(setup, stage, table.axis, peaks));
    table.policies.push_back(std::move(peaks));
  }
  return table;
}

}  // namespace spillway
