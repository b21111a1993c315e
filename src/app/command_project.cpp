// spillway project: the policies of a case in virtual time on any number of ranks, without data. No launcher, one process.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/case_reader.hpp"
#include "app/commands.hpp"
#include "app/launcher.hpp"
#include "app/option_table.hpp"
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
  app.add_option("CASE.toml", request->source.file, "what to project: a file such as inputs/runs/demo.toml")
      ->required();
  app.add_option("--set", request->source.settings, "key=value of an option below; may be repeated, the last one wins")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--output", request->output,
                 "folder for results [results/local/CASE/JOBID-or-UTC]; nothing is overwritten");
  app.get_option("--output")->type_name("DIR");
  app.add_flag("--csv-per-rank", request->csv_per_rank, "also write a CSV of iterations per rank");
  app.footer(option_help);
  return [request] { return project(*request); };
}

}  // namespace spillway::app
