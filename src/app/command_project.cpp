// spillway project: the policies of a case in virtual time on any number of ranks, without data. No launcher, one process.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/commands.hpp"
#include "app/launcher.hpp"
#include "app/output_folder.hpp"
#include "app/results.hpp"
#include "run/projected_experiment.hpp"

namespace spillway::app {
namespace {

/// The command line of `spillway project`.
struct ProjectRequest {
  CaseSource source;
  std::string output;  ///< folder for results; empty: default_output_folder
  bool csv_per_rank = false;
};

ExitCode project(const ProjectRequest& request) {
  Case c = read_case(request.source);
  c.clock = ClockKind::virtual_time;  // there is no other without data
  validate(c, 0);
  if (!is_first_rank()) return ExitCode::valid;
  if (!request.output.empty()) check_output_folder(request.output);
  const std::string folder = request.output.empty() ? default_output_folder(c.name).string() : request.output;
  create_output_folder(folder);
  Report report = project_experiment(c);
  write_results(report, c, folder, request.csv_per_rank);
  fmt::print("results in {}\n", folder);
  std::fflush(stdout);
  return invalid_reasons(report).empty() ? ExitCode::valid : ExitCode::invalid;
}

}  // namespace

Action declare_project(CLI::App& app) {
  const auto request = std::make_shared<ProjectRequest>();
  add_case_options(app, request->source, "to project");
  add_result_options(app, request->output, request->csv_per_rank);
  return [request] { return project(*request); };
}

}  // namespace spillway::app
