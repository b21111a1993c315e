#pragma once
// The search behind the policy `hindsight`: the same cap, every load of an iteration known in advance.
#include "run/policy_projection.hpp"

namespace spillway {

/// What `policy` decides in all iterations, by projection.
JobDecisions project_decisions(const ProjectionSetting& setting, const std::string& policy);

struct Hindsight {
  JobDecisions decisions;  ///< of the iteration; empty where no candidate fits
  Seconds seconds, first;  ///< projected: found, and the best single candidate's
  int tried = 0;           ///< projections
};

/// Takes the candidates that fit the iteration (those given, full recompute, selective, keeping everything) and exchanges
/// them expert group by expert group as long as the projected iteration gets shorter. Never slower than the best of
/// them by the cost model; no bound: the search is not exhaustive.
Hindsight search_hindsight(const ProjectionSetting& setting, std::int64_t iteration,
                           const std::vector<JobDecisions>& given);

/// Decisions of all iterations and ranks, never slower than flexible in either choice.
JobDecisions find_hindsight(const ProjectionSetting& setting);

/// The same, the search shared out over the ranks of a run.
/// Collective over MPI_COMM_WORLD. Returns those of this rank.
DecisionTable share_hindsight(const ProjectionSetting& setting);

}  // namespace spillway
