#pragma once
// TOML text to assignments: the only place that knows the TOML library.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/value.hpp"

namespace spillway::app {

inline constexpr std::string_view empty_section = "{}";

/// Every value of a TOML file as (`prefix` + dotted key, value, file:line), sorted by key. A section without
/// values appears as its name with the text `empty_section`, so that its name can be checked. Throws InputError for a
/// file that cannot be read or is not TOML, quoting the line at fault.
std::vector<Assignment> read_toml(const std::filesystem::path& file, const std::string& prefix);

}  // namespace spillway::app
