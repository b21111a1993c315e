#pragma once
// Projects the static policies of a case for every load they might be planned for.
#include "metrics/margin_curve.hpp"
#include "run/policy_projection.hpp"
#include "run/session.hpp"

namespace spillway {

/// Every static policy of the case at every margin of provisioning.margins (unified: as its worst load).
std::vector<MarginPoint> project_margins(const ProjectionSetting& setting);

/// The same, the projections shared out over the ranks. Collective over MPI_COMM_WORLD; all ranks receive the whole curve.
std::vector<MarginPoint> project_margins(const ProjectionSetting& setting, const Session& session);

}  // namespace spillway
