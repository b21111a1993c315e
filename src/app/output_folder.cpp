#include "app/output_folder.hpp"

#include <fmt/chrono.h>

#include <cstdlib>
#include <ctime>

#include "base/error.hpp"
#include "metrics/atomic_file.hpp"

namespace spillway::app {
namespace fs = std::filesystem;

fs::path default_output_folder(const std::string& case_name) {
  std::string id;
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"}) {
    if (const char* job = std::getenv(variable); id.empty() && job) id = job;
  }
  if (id.empty()) id = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(std::time(nullptr)));
  const fs::path first = fs::path("results") / "local" / case_name / id;
  fs::path folder = first;
  for (int n = 2; fs::exists(folder); ++n) folder = first.string() + "-" + std::to_string(n);
  return folder;
}

void check_output_folder(const fs::path& folder) {
  require_input(!fs::exists(folder) || fs::is_directory(folder), "--output {}: is a file, not a folder",
                folder.string());
  if (!fs::exists(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto kind = entry.path().extension();
    require_input(kind != ".json" && kind != ".csv",
                  "--output {}: already holds {}, and results are never overwritten; name another folder",
                  folder.string(), entry.path().filename().string());
  }
}

void create_output_folder(const fs::path& folder) {
  check_output_folder(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw EnvironmentError(fmt::format("--output {}: cannot create it: {}", folder.string(), error.message()));
  probe_file(folder / ".probe");
}

void probe_file(const fs::path& file) {
  std::error_code error;
  write_atomically(file, std::string(4096, ' '));  // a full disk or a read-only folder is better known now
  fs::remove(file, error);
}

}  // namespace spillway::app
