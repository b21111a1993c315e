#pragma once
// The terminal summary and the lines that scripts look for.
#include <string>

#include "metrics/report.hpp"

namespace spillway {

/// The stable line of one policy, without a newline. Begins with FOM on the wall clock, with PROJECTED on the virtual;
/// figures an invalid run does not have read null. An infeasible policy's line begins with INFEASIBLE and ends with the
/// reason. White space in names becomes an underscore.
std::string figure_line(const Report& report, const PolicyRun& run, const Evaluation& evaluation);

/// Header naming the clock, a table of the policies, the stable lines, then VALID, or INVALID and one reason a line.
/// `evaluations` is evaluate(report).
std::string report_text(const Report& report, const std::vector<Evaluation>& evaluations);

}  // namespace spillway
