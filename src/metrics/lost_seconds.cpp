#include "metrics/lost_seconds.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace spillway {

std::optional<Seconds> LostSeconds::total() const {
  if (!exposed_mitigation || !conservative || !lost_work || !cold_start || !waiting) return std::nullopt;
  return *exposed_mitigation + *conservative + *lost_work + *cold_start + *waiting;
}

std::vector<bool> completed_iterations(const PolicyRun& run) {
  std::vector<bool> counts(run.iterations.size());
  std::int64_t lowest_later = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = run.iterations.size(); i-- > 0;) {
    const IterationRecord& iteration = run.iterations[i];
    counts[i] = iteration.completed() && iteration.index < lowest_later;
    lowest_later = std::min(lowest_later, iteration.index);
  }
  return counts;
}

std::int64_t count_restarts(const PolicyRun& run) {
  return std::count_if(run.iterations.begin(), run.iterations.end(), [](const auto& i) { return i.restarted; });
}

Seconds all_seconds(const PolicyRun& run, Seconds restart_seconds) {
  Seconds sum = restart_seconds * static_cast<double>(count_restarts(run));
  for (const IterationRecord& iteration : run.iterations) sum += iteration.charged_seconds();
  return sum;
}

std::optional<std::vector<Seconds>> oracle_seconds(const PolicyRun& run, const PolicyRun& oracle) {
  std::map<std::int64_t, Seconds> by_index;
  const std::vector<bool> oracle_counts = completed_iterations(oracle);
  for (std::size_t i = 0; i < oracle.iterations.size(); ++i) {
    if (oracle_counts[i]) by_index[oracle.iterations[i].index] = oracle.iterations[i].seconds;
  }
  std::vector<Seconds> seconds(run.iterations.size());
  const std::vector<bool> counts = completed_iterations(run);
  for (std::size_t i = 0; i < run.iterations.size(); ++i) {
    if (!counts[i]) continue;
    const auto found = by_index.find(run.iterations[i].index);
    if (found == by_index.end()) return std::nullopt;
    seconds[i] = found->second;
  }
  return seconds;
}

LostSeconds split_lost_seconds(const PolicyRun& run, const RankRecord& rank,
                               const std::optional<std::vector<Seconds>>& oracle, Seconds restart_seconds) {
  Seconds exposed, conservative, lost_work, waiting;
  const std::vector<bool> counts = completed_iterations(run);
  for (std::size_t i = 0; i < run.iterations.size(); ++i) {
    const IterationRecord& iteration = run.iterations[i];
    if (!counts[i]) {
      lost_work += iteration.charged_seconds();
    } else if (oracle) {
      const Seconds excess = iteration.seconds - (*oracle)[i];
      const Seconds own = std::clamp(rank.iterations[i].mitigation_seconds, Seconds(0), std::max(excess, Seconds(0)));
      if (iteration.conservative) {
        conservative += excess;
      } else {
        exposed += own;
        waiting += excess - own;
      }
    }
  }
  LostSeconds lost;
  lost.lost_work = lost_work;
  lost.cold_start = restart_seconds * static_cast<double>(count_restarts(run));
  if (oracle) {
    lost.exposed_mitigation = exposed;
    lost.conservative = conservative;
    lost.waiting = waiting;
  }
  return lost;
}

}  // namespace spillway
