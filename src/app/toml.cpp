#include "app/toml.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace spillway::app {
namespace {

template <class Node>
std::string printed(const Node& node) {
  std::ostringstream out;
  out << node;
  return out.str();
}

Value value_of(const toml::node& node) {
  Value value;
  if (const auto* integer = node.as_integer()) {
    value = {integer->get(), printed(*integer)};
  } else if (const auto* number = node.as_floating_point()) {
    value = {number->get(), printed(*number)};
  } else if (const auto* flag = node.as_boolean()) {
    value = {flag->get(), printed(*flag)};
  } else if (const auto* text = node.as_string()) {
    value = {text->get(), printed(*text)};
  } else if (const auto* array = node.as_array()) {
    std::vector<Value> items;
    for (const toml::node& item : *array) items.push_back(value_of(item));
    value = {std::move(items), printed(*array)};
  } else if (const auto* table = node.as_table()) {
    throw Refusal{"is a table inside a list: " + printed(*table)};
  } else {
    throw Refusal{"is a date or a time, which no option takes"};
  }
  return value;
}

struct Flattening {
  std::string source;
  std::vector<Assignment> found;

  void add(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      const Origin origin{source, static_cast<int>(node.source().begin.line)};
      const toml::table* inner = node.as_table();
      if (inner && inner->empty()) {
        found.push_back({key, {std::vector<Value>{}, std::string(empty_section)}, origin});
      } else if (inner) {
        add(*inner, key + ".");
      } else {
        try {
          found.push_back({key, value_of(node), origin});
        } catch (const Refusal& refusal) {
          throw InputError(fmt::format("{}: {} {}", origin.text(), key, refusal.why));
        }
      }
    }
  }
};

/// Line `number` (from 1) of `text`, without blanks at its ends; only the beginning of one that no person wrote.
std::string line_of(const std::string& text, unsigned number) {
  constexpr std::size_t readable = 120;
  std::istringstream lines(text);
  std::string line;
  for (unsigned i = 0; i < number; ++i) std::getline(lines, line);
  const auto first = line.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  const std::size_t length = line.find_last_not_of(" \t\r") - first + 1;
  return line.substr(first, std::min(length, readable)) + (length > readable ? " ..." : "");
}

}  // namespace

std::vector<Assignment> read_toml(const std::filesystem::path& file, const std::string& prefix) {
  const auto refuse = [&file] {
    throw InputError(fmt::format("cannot read {}: no such file, not a file, or empty", file.string()));
  };
  if (std::error_code none; !std::filesystem::is_regular_file(file, none)) refuse();  // opening a pipe would wait
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  if (!in || !(content << in.rdbuf())) refuse();
  const std::string text = content.str();
  Flattening flattening{file.string(), {}};
  try {
    flattening.add(toml::parse(text, file.string()), prefix);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    throw InputError(fmt::format("{}:{}: {} in: {}", file.string(), line, error.description(), line_of(text, line)));
  }
  return std::move(flattening.found);
}

Value value_of_text(const std::string& text) {
  Value value{text, text, true};
  try {
    const toml::table table = toml::parse("value = " + text);
    if (table.size() == 1 && table.contains("value") && !table["value"].is_table()) {
      value.data = value_of(*table.get("value")).data;
    }
  } catch (const toml::parse_error&) {  // not TOML: a plain word
  } catch (const Refusal&) {            // a date, say: a plain word too
  }
  return value;
}

}  // namespace spillway::app
