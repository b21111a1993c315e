#pragma once
// The commands of the program. To add one, add a file and a line to the table.
#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string_view>

#include "app/case_reader.hpp"
#include "base/error.hpp"

namespace spillway::app {

using Action = std::function<ExitCode()>;

struct Command {
  std::string_view name, summary;
  Action (*declare)(CLI::App& app);  ///< adds the command's options; the action runs once they are parsed
};

std::span<const Command> command_table();

Action declare_run(CLI::App& app);
Action declare_plan(CLI::App& app);
Action declare_project(CLI::App& app);
Action declare_calibrate(CLI::App& app);

/// The options of every command that reads a case: CASE.toml, `--set`, and the keys below. `purpose`: "to run".
void add_case_options(CLI::App& app, CaseSource& source, std::string_view purpose);
/// The options of commands that write a folder of results: `--output`, `--csv-per-rank`.
void add_result_options(CLI::App& app, std::string& output, bool& csv_per_rank);

/// Parses the command line and runs its command. Help and version go to standard output of the first rank. Throws
/// InputError for a command line that makes no sense.
ExitCode run_command_line(int argc, char** argv);

}  // namespace spillway::app
