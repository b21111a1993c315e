#pragma once
// A case from start to report without data: every policy over the same routing, in virtual time, in this process.
#include "metrics/report.hpp"
#include "run/case.hpp"

namespace spillway {

/// Every policy of the case, projected; the case's clock must be virtual. `config` and `hash` are left to the caller. Throws
/// InputError for a policy that a projection cannot carry out.
Report project_experiment(const Case& c);

}  // namespace spillway
