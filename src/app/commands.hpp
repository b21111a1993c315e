#pragma once
// The commands of the program. To add one, add a file and a line to the table.
#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string_view>

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

/// Parses the command line and runs its command. Help and version go to standard output of the first rank. Throws
/// InputError for a command line that makes no sense.
ExitCode run_command_line(int argc, char** argv);

}  // namespace spillway::app
