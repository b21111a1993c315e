#pragma once
// A value as a person wrote it, where it was written, and its conversion to the type of the field that it sets.
#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "base/units.hpp"
#include "run/case.hpp"

namespace spillway::app {

/// Where a value was written: a file and line, or the command line.
struct Origin {
  std::string source;
  int line = 0;  ///< from 1; 0 on the command line
  std::string text() const { return line > 0 ? source + ":" + std::to_string(line) : source; }
};

struct Value {
  std::variant<bool, std::int64_t, double, std::string, std::vector<Value>> data;
  std::string text;        ///< as written (command line) or as understood (file), for messages
  bool bare_word = false;  ///< from the command line, where text needs no quotes
};

struct Assignment {
  std::string key;
  Value value;
  Origin origin;
};

/// Inclusive range of a number (of bytes, of seconds).
struct Limits {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

/// Why a value does not suit an option; the option adds key, value and origin.
struct Refusal {
  std::string why;
};

/// Interprets `text` of the command line: a TOML value where it is one, otherwise plain text.
Value value_of_text(const std::string& text);

/// Conversions; they throw Refusal. Sizes are plain bytes or text such as "24 MiB", times plain seconds or "284 s".
void read(const Value& value, Limits limits, bool& field);
void read(const Value& value, Limits limits, int& field);
void read(const Value& value, Limits limits, std::int64_t& field);
void read(const Value& value, Limits limits, std::uint64_t& field);
void read(const Value& value, Limits limits, double& field);
void read(const Value& value, Limits limits, Bytes& field);
void read(const Value& value, Limits limits, Seconds& field);
void read(const Value& value, Limits limits, std::string& field);
void read(const Value& value, Limits limits, std::vector<std::string>& field);
void read(const Value& value, Limits limits, std::vector<std::int64_t>& field);
void read(const Value& value, Limits limits, std::vector<double>& field);
void read(const Value& value, Limits limits, ClockKind& field);
void read(const Value& value, Limits limits, GreedyChoice& field);
void read(const Value& value, Limits limits, BudgetShare& field);
void read(const Value& value, Limits limits, Choice& field);
void read(const Value& value, Limits limits, Inventory& field);

/// Words of the enumerations, in the order of their enumerators.
const std::vector<std::string>& words(ClockKind);
const std::vector<std::string>& words(GreedyChoice);
const std::vector<std::string>& words(BudgetShare);
const std::vector<std::string>& words(Choice);
const std::vector<std::string>& words(Inventory);

}  // namespace spillway::app
