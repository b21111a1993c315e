#include "app/commands.hpp"

#include <iostream>
#include <map>
#include <sstream>

#include "app/launcher.hpp"
#include "app/option_table.hpp"
#include "base/nearest.hpp"

namespace spillway::app {
namespace {

constexpr Command table[] = {
    {"run", "train with real data under the case's policies and compare them", declare_run},
    {"plan", "parameters, FLOPs, memory per rank and the load each policy survives, by arithmetic", declare_plan},
    {"project", "the policies of a case on any number of ranks in virtual time: no data, no launcher", declare_project},
    {"calibrate", "measure this machine, under a launcher, into a machine file", declare_calibrate},
};

void refuse_unknown_command(const std::string& word) {
  std::vector<std::string> names;
  for (const Command& command : table) names.emplace_back(command.name);
  const bool is_known = word.starts_with('-') || std::find(names.begin(), names.end(), word) != names.end();
  require_input(is_known, "there is no command {}; did you mean {}? (spillway --help)", word, nearest(word, names));
}

}  // namespace

void add_case_options(CLI::App& app, CaseSource& source, std::string_view purpose) {
  app.add_option("CASE.toml", source.file, fmt::format("what {}: a file such as inputs/runs/demo.toml", purpose))
      ->required();
  app.add_option("--set", source.settings, "key=value of an option below; may be repeated, the last one wins")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.footer(option_help);
}

void add_result_options(CLI::App& app, std::string& output, bool& csv_per_rank) {
  app.add_option("--output", output, "folder for results [results/local/CASE/JOBID-or-UTC]; nothing is overwritten");
  app.get_option("--output")->type_name("DIR");
  app.add_flag("--csv-per-rank", csv_per_rank, "also write a CSV of iterations per rank");
}

std::span<const Command> command_table() { return table; }

ExitCode run_command_line(int argc, char** argv) {
  CLI::App app{
      "Spillway: what provisioning of activation memory costs when expert loads spike.\n"
      "Trains synthetic Mixture-of-Experts layers and compares policies under a memory cap.",
      "spillway"};
  app.set_version_flag("--version", "spillway " SPILLWAY_VERSION);
  app.require_subcommand(1);
  app.footer("Exit codes: 0 valid, 1 invalid, 2 usage or input, 3 environment, 75 requeue.");
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : command_table()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    actions[sub] = command.declare(*sub);
  }
  if (argc > 1) refuse_unknown_command(argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help or --version: CLI11 knows the text
    std::ostringstream text;
    app.exit(help, text, text);
    if (is_first_rank()) std::cout << text.str();
    return ExitCode::valid;
  } catch (const CLI::ParseError& error) {
    throw InputError(std::string(error.what()) + " (see spillway --help and spillway COMMAND --help)");
  }
  return actions.at(app.get_subcommands().front())();
}

}  // namespace spillway::app
