#include "run/calibrate_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace spillway {
namespace {

constexpr std::size_t line_width = 120;

/// `text` as comment lines, broken between words.
std::string comment(const std::string& text) {
  std::istringstream words(text);
  std::string result, line = "#";
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > line_width && line != "#") {
      result += line + '\n';
      line = "#";
    }
    line += ' ' + word;
  }
  return result + line + '\n';
}

}  // namespace

std::string machine_file_text(const Calibration& calibration) {
  std::string text;
  for (const std::string& line : calibration.setting) text += comment(line);
  for (const MachineConstant& c : calibration.constants)
    text += fmt::format("\n{}{} = {}\n", comment(c.source), c.key, c.value);
  return text;
}

std::string calibration_table(const Calibration& calibration) {
  std::size_t key_width = 0, value_width = 0;
  for (const MachineConstant& c : calibration.constants) {
    key_width = std::max(key_width, c.key.size());
    value_width = std::max(value_width, c.value.size());
  }
  std::string text;
  for (const std::string& line : calibration.setting) text += line + '\n';
  text += '\n';
  for (const MachineConstant& c : calibration.constants)
    text += fmt::format("{:<{}}  {:>{}}  {}\n", c.key, key_width, c.value, value_width, c.source);
  return text;
}

std::string toml_number(double value) { return fmt::format("{:.4g}", value); }

std::string toml_microseconds(double seconds) { return fmt::format("\"{:.4g} us\"", seconds * 1e6); }

}  // namespace spillway
