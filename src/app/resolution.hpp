#pragma once
// One rank reads the inputs; what it found travels to the others as one text, errors included, so that all leave alike.
#include <string>
#include <vector>

#include "app/case_reader.hpp"
#include "base/error.hpp"
#include "run/case.hpp"
#include "run/timeline_recorder.hpp"

namespace spillway::app {

/// The command line of `spillway run`.
struct RunRequest {
  CaseSource source;
  std::string output;          ///< folder for results; empty: default_output_folder
  bool validate_only = false;  ///< check everything, start nothing
  bool csv_per_rank = false;   ///< also write iterations per rank
  std::string decisions;       ///< file for every decision; empty: none
  struct Timeline {
    std::string file;                      ///< empty: none
    std::string policy;                    ///< empty: the first ranked one of the case
    std::vector<std::int64_t> iterations;  ///< empty: the first in a burst, or else the first
  } timeline;
};

/// What the timeline shows of this case. Throws InputError for a policy or an iteration that the case does not run.
TimelineOptions timeline_options(const Case& c, const RunRequest::Timeline& request);

struct Resolution {
  ExitCode code = ExitCode::valid;
  std::string text;    ///< canonical_text of the case, or the error message
  std::string folder;  ///< for results, created; empty with validate_only and after an error
};

/// On the first rank: reads the case, validates it against the launch and creates the folder for results. Errors are
/// part of the answer.
Resolution resolve(const RunRequest& request, const LaunchFacts& facts);

/// To and from the text that is broadcast.
std::string pack(const Resolution& resolution);
Resolution unpack(const std::string& text);

/// On every rank: the case, or the Error, whose message is empty except on the first rank, which reports it.
Case agreed_case(const Resolution& resolution, bool first_rank);

}  // namespace spillway::app
