#pragma once
// Measures the constants of a machine file on the ranks of a job.
#include "run/calibrate_file.hpp"
#include "run/session.hpp"

namespace spillway {

/// Every rank measures at once, as the ranks of a run work, so that a rank's constants are those of its share of the
/// machine. A constant is a median over ranks and repetitions; its source says of what, with the spread. `quick`
/// measures small sizes only: for tests. Collective over the world; the result is the same on all ranks.
Calibration calibrate(const Session& session, bool quick);

}  // namespace spillway
