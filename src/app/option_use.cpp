// What is made of the option table: look-up, assignment, echo and help.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/option_table.hpp"
#include "app/toml.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"

namespace spillway::app {
namespace {

/// "model" of "model.hidden_size"; empty for options of the case itself.
std::string_view section_of(std::string_view key) {
  const auto dot = key.find('.');
  return dot == std::string_view::npos ? std::string_view{} : key.substr(0, dot);
}

std::string_view last_part(std::string_view key) { return key.substr(key.rfind('.') + 1); }

/// The known key a person most likely meant: the same name in another section, otherwise the fewest edits.
std::string suggestion(std::string_view key) {
  std::vector<std::string> all, same_name;
  for (const Option& option : option_table()) {
    all.push_back(option.key);
    if (last_part(option.key) == last_part(key)) same_name.push_back(option.key);
  }
  return nearest(key, same_name.empty() ? all : same_name);
}

/// 25165824 -> "24 MiB"; sizes that are no multiple of 1024 stay in bytes.
std::string readable_size(std::int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  for (; unit + 1 < std::size(units) && bytes != 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return fmt::format("{} {}", bytes, units[unit]);
}

std::string default_of(const Option& option) {
  const Json value = option.load(Case{});
  if (option.kind == "size") return readable_size(value.get<std::int64_t>());
  if (!value.is_string()) return value.dump();
  const auto text = value.get<std::string>();
  return text.empty() ? value.dump() : text;
}

}  // namespace

Json::json_pointer pointer_of(const Option& option) {
  std::string path = "/" + option.key;
  std::replace(path.begin(), path.end(), '.', '/');
  return Json::json_pointer(path);
}

const Option* find_option(std::string_view key) {
  for (const Option& option : option_table()) {
    if (option.key == key) return &option;
  }
  return nullptr;
}

void assign(Case& c, const Assignment& assignment) {
  const std::string& key = assignment.key;
  const auto& value = assignment.value;
  const auto& origin = assignment.origin;
  const Option* option = find_option(key);
  if (!option) {
    const auto is_section = [&](const Option& o) { return section_of(o.key) == key; };
    if (value.text == empty_section && std::any_of(option_table().begin(), option_table().end(), is_section)) return;
    throw InputError(fmt::format("{}: unknown option {}; did you mean {}? (spillway run --help lists all)",
                                 origin.text(), key, suggestion(key)));
  }
  try {
    option->store(c, value);
  } catch (const Refusal& refusal) {
    throw InputError(fmt::format("{}: {} = {}: {}", origin.text(), key, value.text, refusal.why));
  }
}

Json config_json(const Case& c) {
  Json config;
  for (const Option& option : option_table()) config[pointer_of(option)] = option.load(c);
  return config;
}

std::string comparable_text(const Case& c, std::string_view data) {
  nlohmann::json compared = {{"data", data}};
  for (const Option& option : option_table()) {
    if (option.compared) compared[option.key] = option.load(c);
  }
  compared["routing.trace"] = std::filesystem::path(c.routing.trace).filename().string();
  return compared.dump();
}

std::string option_help() {
  std::string text =
      "Options of a case, in its file (sections in brackets) or as --set key=value. Later ones win: defaults, model "
      "and\n"
      "machine file, case file, command line. Sizes take B, kB, MB, GB, TB, KiB, MiB, GiB, TiB; times ns, us, ms, s, "
      "min, h.\n";
  std::string_view section = "?";
  for (const Option& option : option_table()) {
    if (section_of(option.key) != section) {
      section = section_of(option.key);
      text += section.empty() ? "\n" : fmt::format("\n[{}]\n", section);
    }
    const bool ranged = option.is_numeric() || option.kind == "list of integers" || option.kind == "list of numbers";
    const std::string range = ranged ? fmt::format(", {} to {}", option.limits.least, option.limits.most) : "";
    text += fmt::format("  {} = {}{}\n      {} ({}{})\n", option.key, default_of(option),
                        option.unit.empty() || option.kind == "size" ? "" : " " + option.unit, option.meaning,
                        option.kind, range);
  }
  return text;
}

}  // namespace spillway::app
