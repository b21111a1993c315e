#pragma once
// Where a run's time went beyond the oracle's.
#include <optional>
#include <vector>

#include "metrics/step_record.hpp"

namespace spillway {

/// Seconds of one rank beyond the oracle's over the same workload, split without remainder. All ranks lose the same
/// total; what they spend it on differs. Without an oracle only lost_work and cold_start are known.
struct LostSeconds {
  std::optional<Seconds> exposed_mitigation;  ///< excess of calm-policy iterations that the rank spent mitigating
  std::optional<Seconds> conservative;        ///< excess of completed iterations run under the fallback
  std::optional<Seconds> lost_work;           ///< iterations lost to OOM, up to the event, and completed ones undone
  std::optional<Seconds> cold_start;          ///< restarts * charged restart_seconds
  /// The rest of the excess: waiting for ranks that mitigate or are loaded more. Negative only where an iteration is
  /// faster than the oracle's: noise of a wall clock.
  std::optional<Seconds> waiting;

  /// The parts added in the order above; empty without an oracle. Equals time - time of the oracle.
  std::optional<Seconds> total() const;
};

/// For each record whether its work counts: completed, and not undone by a later return to a snapshot (a later record
/// with the same or a lower index).
std::vector<bool> completed_iterations(const PolicyRun& run);

/// Number of restarts of a run.
std::int64_t count_restarts(const PolicyRun& run);

/// All time of a run: every iteration as charged, and restart_seconds for every restart.
Seconds all_seconds(const PolicyRun& run, Seconds restart_seconds);

/// The oracle's seconds for every record of `run` whose work counts (zero for the others); empty when the oracle did
/// not complete one of them.
std::optional<std::vector<Seconds>> oracle_seconds(const PolicyRun& run, const PolicyRun& oracle);

/// Splits the loss of one rank of `run`. `oracle` is what oracle_seconds returned, or empty.
LostSeconds split_lost_seconds(const PolicyRun& run, const RankRecord& rank,
                               const std::optional<std::vector<Seconds>>& oracle, Seconds restart_seconds);

}  // namespace spillway
