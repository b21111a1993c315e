#pragma once
// A case from start to report: verification, then every policy over the same routing.
#include "metrics/report.hpp"
#include "run/case.hpp"
#include "run/session.hpp"
#include "run/timeline_recorder.hpp"

namespace spillway {

/// What a run is asked for beside its report; null: not asked for.
struct SideOutputs {
  std::vector<std::string>* decisions = nullptr;  ///< on rank 0, every rank's decisions as JSON lines
  TimelineRecorder* timeline = nullptr;           ///< this rank's
};

/// What the report says of the case before anything has run.
Report report_of(const Case& c);

/// Collective over the world. The report is complete on rank 0; on the others it holds only its reasons, so that every
/// rank leaves with the same exit code. `config` and `hash` are left to the caller.
Report run_experiment(const Case& c, const Session& session, const SideOutputs& outputs = {});

}  // namespace spillway
