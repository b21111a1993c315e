#include "app/value.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/nearest.hpp"

namespace spillway::app {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 10> size_units{{{"B", 1},
                                           {"kB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"KiB", 0x1p10},
                                           {"MiB", 0x1p20},
                                           {"GiB", 0x1p30},
                                           {"TiB", 0x1p40},
                                           {"KB", 1e3}}};
constexpr std::array<Unit, 6> time_units{
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}}};

/// "1.5 GiB" -> 1.5 * 2^30.
double quantity(const std::string& text, std::span<const Unit> units) {
  const auto refuse = [&] {
    std::vector<std::string_view> names;
    for (const Unit& unit : units) names.push_back(unit.name);
    return Refusal{fmt::format("expected a number with one of the units {}", fmt::join(names, ", "))};
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) throw refuse();
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : units) {
    if (unit == known.name) return number * known.factor;
  }
  throw refuse();
}

void check(double number, Limits limits, std::string_view unit = "") {
  if (!std::isfinite(number)) throw Refusal{"expected a finite number"};
  if (number < limits.least || number > limits.most) {
    throw Refusal{fmt::format("must lie between {} and {}{}", limits.least, limits.most, unit)};
  }
}

std::int64_t whole(const Value& value, Limits limits, std::string_view unit = "") {
  const auto* number = std::get_if<std::int64_t>(&value.data);
  if (!number) throw Refusal{"expected a whole number that fits 64 bits"};
  check(static_cast<double>(*number), limits, unit);
  return *number;
}

double real(const Value& value, Limits limits, std::string_view unit = "") {
  double number = 0;
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) {
    number = static_cast<double>(*integer);
  } else if (const auto* floating = std::get_if<double>(&value.data)) {
    number = *floating;
  } else {
    throw Refusal{"expected a number"};
  }
  check(number, limits, unit);
  return number;
}

template <class Enumeration>
void read_word(const Value& value, Enumeration& field) {
  std::string word;
  read(value, {}, word);
  const auto& known = words(Enumeration{});
  const auto found = std::find(known.begin(), known.end(), word);
  if (found == known.end()) {
    throw Refusal{fmt::format("expected one of {}; nearest: {}", fmt::join(known, ", "), nearest(word, known))};
  }
  field = static_cast<Enumeration>(found - known.begin());
}

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

/// Items of a list; on the command line also words separated by commas.
std::vector<Value> items(const Value& value) {
  if (const auto* list = std::get_if<std::vector<Value>>(&value.data)) return *list;
  if (!value.bare_word) throw Refusal{"expected a list such as [a, b]"};
  std::vector<Value> list;
  std::string_view rest = value.text;
  for (bool more = true; more;) {
    const auto comma = rest.find(',');
    list.push_back(value_of_text(trimmed(rest.substr(0, comma))));
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return list;
}

template <class Item>
void read_list(const Value& value, Limits limits, std::vector<Item>& field) {
  std::vector<Item> list;
  for (const Value& item : items(value)) read(item, limits, list.emplace_back());
  field = std::move(list);
}

}  // namespace

void read(const Value& value, Limits, bool& field) {
  const bool* flag = std::get_if<bool>(&value.data);
  if (!flag) throw Refusal{"expected true or false"};
  field = *flag;
}

void read(const Value& value, Limits limits, int& field) {
  limits.most = std::min<double>(limits.most, std::numeric_limits<int>::max());
  field = static_cast<int>(whole(value, limits));
}

void read(const Value& value, Limits limits, std::int64_t& field) { field = whole(value, limits); }

void read(const Value& value, Limits limits, std::uint64_t& field) {
  limits.least = std::max(limits.least, 0.0);
  field = static_cast<std::uint64_t>(whole(value, limits));
}

void read(const Value& value, Limits limits, double& field) { field = real(value, limits); }

void read(const Value& value, Limits limits, Bytes& field) {
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    limits.most = std::min(limits.most, 0x1p62);
    const double bytes = quantity(*text, size_units);
    check(bytes, limits, " bytes");
    if (bytes != std::floor(bytes)) throw Refusal{fmt::format("is {} bytes: expected whole bytes", bytes)};
    field = Bytes(static_cast<std::int64_t>(bytes));
  } else {
    field = Bytes(whole(value, limits, " bytes"));
  }
}

void read(const Value& value, Limits limits, Seconds& field) {
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    field = Seconds(quantity(*text, time_units));
    check(field.value, limits, " seconds");
  } else {
    field = Seconds(real(value, limits, " seconds"));
  }
}

void read(const Value& value, Limits, std::string& field) {
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    field = *text;
  } else if (value.bare_word) {
    field = value.text;
  } else {
    throw Refusal{"expected text in quotes"};
  }
}

void read(const Value& value, Limits limits, std::vector<std::string>& field) { read_list(value, limits, field); }
void read(const Value& value, Limits limits, std::vector<std::int64_t>& field) { read_list(value, limits, field); }
void read(const Value& value, Limits limits, std::vector<double>& field) { read_list(value, limits, field); }
void read(const Value& value, Limits, ClockKind& field) { read_word(value, field); }
void read(const Value& value, Limits, Inventory& field) { read_word(value, field); }
void read(const Value& value, Limits, GreedyChoice& field) { read_word(value, field); }
void read(const Value& value, Limits, BudgetShare& field) { read_word(value, field); }
void read(const Value& value, Limits, Choice& field) { read_word(value, field); }

const std::vector<std::string>& words(ClockKind) {
  static const std::vector<std::string> list{"wall", "virtual"};
  return list;
}

const std::vector<std::string>& words(GreedyChoice) {
  static const std::vector<std::string> list{"greedy", "ratio"};
  return list;
}

const std::vector<std::string>& words(BudgetShare) {
  static const std::vector<std::string> list{"level", "published"};
  return list;
}

const std::vector<std::string>& words(Choice) {
  static const std::vector<std::string> list{"auto", "always", "never"};
  return list;
}

const std::vector<std::string>& words(Inventory) {
  static const std::vector<std::string> list{"lean", "default", "with_combine"};
  return list;
}

}  // namespace spillway::app
