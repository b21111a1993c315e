#pragma once
// A case from start to report: verification, then every policy over the same routing.
#include "metrics/report.hpp"
#include "run/case.hpp"
#include "run/session.hpp"

namespace spillway {

/// Collective over the world. The report is complete on rank 0; on the others it holds only its reasons, so that every
/// rank leaves with the same exit code. `config` and `hash` are left to the caller.
/// Beside the report, rank 0 receives every rank's decisions as JSON lines where `decisions` is not null.
Report run_experiment(const Case& c, const Session& session, std::vector<std::string>* decisions = nullptr);

}  // namespace spillway
