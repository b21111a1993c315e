// spillway calibrate: measures a machine file, under a launcher.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "app/commands.hpp"
#include "app/launcher.hpp"
#include "app/resolution.hpp"
#include "metrics/atomic_file.hpp"
#include "run/calibrate.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

struct CalibrateRequest {
  std::string output;  ///< machine file; empty: machine-HOST.toml
  bool quick = false;
};

/// Refuses a file that exists, another ending (a case would look for a name instead), and a folder that does not exist.
void check_output(const fs::path& file) {
  require_input(file.extension() == ".toml", "--output {}: a machine file ends in .toml", file.string());
  require_input(!fs::exists(file), "--output {}: exists already, and nothing is overwritten; name another file",
                file.string());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  require_input(fs::is_directory(folder), "--output {}: there is no folder {}", file.string(), folder.string());
  if (::access(folder.c_str(), W_OK) != 0)
    throw EnvironmentError(
        fmt::format("--output {}: cannot write into {}; name another folder", file.string(), folder.string()));
}

/// The first rank's verdict on the output file, for all ranks.
Resolution resolve(const CalibrateRequest& request, const Session& session) {
  const fs::path file = request.output.empty() ? fmt::format("machine-{}.toml", session.host()) : request.output;
  try {
    check_output(file);
    return {ExitCode::valid, "", file.string()};
  } catch (const Error& error) {
    return {error.code(), error.what(), ""};
  } catch (const std::exception& error) {  // a name that the file system does not take, say
    return {ExitCode::environment, error.what(), ""};
  }
}

/// A failure on one rank must not leave the others waiting: it ends the whole job.
Calibration calibrate_or_abort(const Session& session, bool quick) {
  try {
    return calibrate(session, quick);
  } catch (const Error& error) {
    session.abort(error.code(), error.what());
  } catch (const std::exception& error) {
    session.abort(ExitCode::environment, error.what());
  }
}

ExitCode launch(const CalibrateRequest& request) {
  const Session session;
  const bool first = session.rank() == 0;
  const Resolution agreed = unpack(session.broadcast(first ? pack(resolve(request, session)) : ""));
  if (agreed.code != ExitCode::valid) {
    // Said while the session lasts: a launcher ends the first rank as soon as another has left with an error.
    if (first) fmt::print(stderr, "spillway: error: {}\n", agreed.text);
    throw Error(agreed.code, "");
  }
  const Calibration calibration = calibrate_or_abort(session, request.quick);
  if (first) {
    fmt::print("{}", calibration_table(calibration));
    std::fflush(stdout);  // shown even where it cannot be written
    check_output(agreed.folder);
    write_atomically(agreed.folder, machine_file_text(calibration));
    fmt::print("\nmachine file {0}: use it as machine = \"{0}\"\n", agreed.folder);
    std::fflush(stdout);
  }
  return ExitCode::valid;
}

}  // namespace

Action declare_calibrate(CLI::App& app) {
  const auto request = std::make_shared<CalibrateRequest>();
  app.add_option("--output", request->output, "machine file to write [machine-HOST.toml]; nothing is overwritten")
      ->type_name("FILE.toml");
  app.add_flag("--quick", request->quick, "small sizes, a few seconds: a try, not a measurement");
  app.footer(
      "Start it as a run would be started: the same ranks per node, threads and binding. Every rank measures at once.");
  return [request] { return launch(*request); };
}

}  // namespace spillway::app
