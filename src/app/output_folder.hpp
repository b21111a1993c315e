#pragma once
// Where results go. Nothing is ever overwritten.
#include <filesystem>
#include <string>

namespace spillway::app {

/// results/local/CASE/ID with the batch job's number (SLURM_JOB_ID, PBS_JOBID, LSB_JOBID) or the UTC time as ID,
/// followed by -2, -3 ... where that one is taken.
std::filesystem::path default_output_folder(const std::string& case_name);

/// Throws InputError if `folder` is a file or holds results (JSON or CSV files) already.
void check_output_folder(const std::filesystem::path& folder);

/// Checks and creates `folder` and tries to write there. Throws EnvironmentError where that is not possible.
void create_output_folder(const std::filesystem::path& folder);

/// Tries to write where `file` shall be, and leaves nothing. Throws EnvironmentError where that is not possible.
void probe_file(const std::filesystem::path& file);

}  // namespace spillway::app
