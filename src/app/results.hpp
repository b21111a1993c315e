#pragma once
// What a run or a projection leaves: the table on the terminal, and the files of its folder.
#include <filesystem>

#include "metrics/report.hpp"
#include "run/case.hpp"

namespace spillway::app {

/// Shows the report and writes result.json, iterations.csv and, if asked for, rank_iterations.csv. Fills in the report's
/// `config` and `hash`. Throws EnvironmentError for a file that cannot be written, after the report has been shown.
void write_results(Report& report, const Case& c, const std::filesystem::path& folder, bool csv_per_rank);

}  // namespace spillway::app
