#pragma once
// From files and the command line to one Case, and from a Case to the text in which it travels to the other ranks.
#include <filesystem>
#include <string>
#include <vector>

#include "run/case.hpp"

namespace spillway::app {

/// What the command line says about a case.
struct CaseSource {
  std::filesystem::path file;         ///< inputs/runs/NAME.toml
  std::vector<std::string> settings;  ///< "key=value", in the order given: the last of equal keys wins
};

/// Reads the case file, the model and machine files it names, and the settings. Later ones win: defaults, model and
/// machine file, case file, settings. Model NAME is ../models/NAME.toml beside the case file (or models/NAME.toml, or
/// NAME.toml), or a path ending in .toml relative to the case file or the working folder; machines alike.
/// Throws InputError for files that cannot be read, unknown keys and values that do not suit their option.
Case read_case(const CaseSource& source);

/// The whole configuration as one line of JSON; parse_case gives back an equal Case, every double bit for bit.
std::string canonical_text(const Case& c);
Case parse_case(const std::string& canonical);

}  // namespace spillway::app
