#pragma once
// A measured machine as text: a machine file with the source of every constant, and a table for the terminal. Pure.
#include <string>
#include <vector>

namespace spillway {

struct MachineConstant {
  std::string key;     ///< of MachineProfile: "peak_flops"
  std::string value;   ///< as TOML: 1.1e+11, "2.5 us", true
  std::string source;  ///< how it was measured or why it was chosen
};

struct Calibration {
  std::vector<std::string> setting;  ///< host, date, ranks, libraries: a line each
  std::vector<MachineConstant> constants;
};

/// A machine file: the setting and every source are comments. Lines are at most 120 characters wide where words allow.
std::string machine_file_text(const Calibration& calibration);
/// A line per constant: key, value, source.
std::string calibration_table(const Calibration& calibration);

/// A number or a time as TOML, with four digits.
std::string toml_number(double value);
std::string toml_microseconds(double seconds);

}  // namespace spillway
