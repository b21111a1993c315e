// The command line, the folder for results, and what the first rank tells the others.
#include "app/commands.hpp"
#include "app/option_table.hpp"
#include "app/output_folder.hpp"
#include "app/resolution.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Runs `spillway WORDS...` in this process and returns what it printed.
std::string output_of(std::vector<std::string> words) {
  words.insert(words.begin(), "spillway");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStdout();
  ExitCode code = ExitCode::invalid;
  try {
    code = run_command_line(static_cast<int>(argv.size()), argv.data());
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(code, ExitCode::valid);
  return testing::internal::GetCapturedStdout();
}

std::string refused(const std::vector<std::string>& words) {
  return input_error_of([&] { output_of(words); });
}

TEST(CommandLine, HelpAndVersionNeedNoCase) {
  EXPECT_THAT(output_of({"--version"}), HasSubstr("spillway " SPILLWAY_VERSION));
  EXPECT_THAT(output_of({"--help"}), HasSubstr("run"));
  const std::string help = output_of({"run", "--help"});
  for (const Option& option : option_table()) EXPECT_THAT(help, HasSubstr("  " + option.key + " = "));
  for (const char* flag : {"--set", "--output", "--validate-only", "--allow-oversubscribed", "--csv-per-rank"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(CommandLine, HelpIsPrintedByTheFirstRankOnly) {
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  EXPECT_EQ(output_of({"--help"}), "");
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_NE(output_of({"--help"}), "");
  unsetenv("OMPI_COMM_WORLD_RANK");
}

TEST(CommandLine, WhatMakesNoSenseIsRefusedWithTheNearest) {
  EXPECT_THAT(refused({"rnu"}), HasSubstr("did you mean run?"));
  EXPECT_THAT(refused({}), HasSubstr("subcommand is required"));
  EXPECT_THAT(refused({"run"}), HasSubstr("CASE.toml"));
  EXPECT_THAT(refused({"run", "a.toml", "--outptu", "x"}), HasSubstr("--outptu"));
  EXPECT_THAT(refused({"run", "a.toml", "b.toml"}), HasSubstr("b.toml"));
  EXPECT_THAT(refused({"run", "none.toml", "--validate-only"}), HasSubstr("cannot read none.toml"));
}

TEST(CommandLine, ValidateOnlyShowsTheArithmeticAndStartsNothing) {
  InputTree inputs;
  inputs.write_case("[training]\niterations = 3\n[routing]\npreset = \"balanced\"\n");
  const std::string folder = (inputs.root() / "out").string();
  // An option may stand before the case: --set takes one value only.
  const std::string text = output_of({"run", "--set", "parallel.pipeline_parallel=3", inputs.run_file().string(),
                                      "--set", "training.iterations=9", "--validate-only", "--output", folder});
  EXPECT_THAT(text, AllOf(HasSubstr("3 = pipeline_parallel 3 x data_parallel 1 x tensor_parallel 1"),
                          HasSubstr("4 = 2 + 1 + 1"), HasSubstr("9 iterations")));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(CommandLine, FlagAllowsOversubscription) {
  InputTree inputs;
  EXPECT_FALSE(inputs.read().allow_oversubscribed);
  EXPECT_TRUE(inputs.read({"allow_oversubscribed=true"}).allow_oversubscribed);
  inputs.write_case("[routing]\npreset = \"balanced\"\n");
  EXPECT_NO_THROW(output_of({"run", inputs.run_file().string(), "--validate-only", "--allow-oversubscribed"}));
}

TEST(OutputFolder, IsNamedAfterTheBatchJobOrTheTime) {
  setenv("SLURM_JOB_ID", "4711", 1);
  EXPECT_EQ(default_output_folder("demo"), std::filesystem::path("results/local/demo/4711"));
  unsetenv("SLURM_JOB_ID");
  EXPECT_THAT(default_output_folder("demo").string(), testing::MatchesRegex("results/local/demo/[0-9]+T[0-9]+Z"));
}

TEST(OutputFolder, DefaultIsOneThatIsNotTaken) {
  InputTree inputs;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(inputs.root());
  setenv("SLURM_JOB_ID", "4711", 1);
  create_output_folder(default_output_folder("demo"));
  EXPECT_EQ(default_output_folder("demo"), std::filesystem::path("results/local/demo/4711-2"));
  unsetenv("SLURM_JOB_ID");
  std::filesystem::current_path(here);
}

TEST(OutputFolder, WithResultsIsNeverOverwritten) {
  InputTree inputs;
  const auto folder = inputs.root() / "out";
  EXPECT_NO_THROW(create_output_folder(folder));
  EXPECT_NO_THROW(create_output_folder(folder));  // fresh and empty
  inputs.write("out/job.log", "a job's own output may lie there\n");
  EXPECT_NO_THROW(create_output_folder(folder));
  inputs.write("out/result.json", "{}");
  EXPECT_THAT(input_error_of([&] { create_output_folder(folder); }), HasSubstr("result.json"));
  EXPECT_THAT(input_error_of([&] { check_output_folder(inputs.run_file()); }), HasSubstr("is a file"));
}

TEST(Resolution, CarriesTheCaseToTheOtherRanks) {
  InputTree inputs;
  inputs.write_case("[routing]\npreset = \"balanced\"\n");
  RunRequest request{
      {inputs.run_file(), {"training.iterations=4"}}, (inputs.root() / "out").string(), false, false, {}, {}};
  const Resolution told = unpack(pack(resolve(request, {1, 1, 1})));
  EXPECT_EQ(agreed_case(told, false), inputs.read({"training.iterations=4"}));
  EXPECT_TRUE(std::filesystem::is_directory(told.folder));
}

TEST(Resolution, CarriesErrorsSoThatAllRanksLeaveAlikeAndOneSpeaks) {
  InputTree inputs;
  inputs.write_case("[routing]\npreset = \"balanced\"\n");
  const RunRequest request{{inputs.run_file(), {}}, (inputs.root() / "out").string(), false, false, {}, {}};
  const Resolution told = unpack(pack(resolve(request, {4, 4, 4})));  // 4 ranks for a case of one
  for (const bool first : {true, false}) {
    try {
      agreed_case(told, first);
      ADD_FAILURE() << "the error was lost";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_EQ(std::string(error.what()).empty(), !first);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(request.output));
}

}  // namespace
}  // namespace spillway::app
