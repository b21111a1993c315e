#include "app/case_reader.hpp"

#include <algorithm>

#include "app/option_table.hpp"
#include "app/toml.hpp"
#include "base/error.hpp"
#include "base/nearest.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

/// `model = "demo"` is short for model.name, `machine = "mini"` for machine.name.
void expand_short_key(Assignment& assignment) {
  const bool is_short = assignment.key == "model" || assignment.key == "machine";
  if (is_short && assignment.value.text != empty_section) assignment.key += ".name";
}

std::vector<Assignment> read_settings(const std::vector<std::string>& settings) {
  std::vector<Assignment> found;
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    require_input(equals != std::string::npos && equals > 0, "--set {}: expected key=value", setting);
    found.push_back({setting.substr(0, equals), value_of_text(setting.substr(equals + 1)), {"--set"}});
    expand_short_key(found.back());
  }
  return found;
}

/// Names of the .toml files in `folder`.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// One kind of file that a case names: models or machines.
struct Kind {
  std::string section;  ///< prefix of its options
  std::string folder;   ///< below inputs/
};

fs::path find_file(const Kind& kind, const std::string& name, const fs::path& case_folder) {
  const bool is_path = name.ends_with(".toml");
  require_input(is_path || name.find('/') == std::string::npos,
                "{} = \"{}\": expected the NAME of inputs/{}/NAME.toml, or a path ending in .toml", kind.section, name,
                kind.folder);
  const fs::path plain = name + (is_path ? "" : ".toml"), beside = case_folder / ".." / kind.folder;
  const std::vector<fs::path> places =
      is_path ? std::vector{case_folder / plain, plain}
              : std::vector{beside / plain, case_folder / kind.folder / plain, case_folder / plain};
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place)) return place.lexically_normal();
  }
  const std::string close = nearest(name, names_in(beside));
  throw InputError(fmt::format("{} = \"{}\": no file {}{}", kind.section, name,
                               places.front().lexically_normal().string(),
                               is_path || close.empty() ? "" : fmt::format("; did you mean \"{}\"?", close)));
}

/// The name that wins among the assignments, then the values of the file it names.
std::vector<Assignment> read_named_file(const Kind& kind, const std::vector<Assignment>& given,
                                        const CaseSource& source) {
  Case named;
  named.model_name = named.machine.name = "";
  for (const Assignment& assignment : given) {
    if (assignment.key == kind.section + ".name") assign(named, assignment);
  }
  const std::string& name = kind.section == "model" ? named.model_name : named.machine.name;
  require_input(!name.empty(), "{}: no {} is named; add {} = \"NAME\" for inputs/{}/NAME.toml", source.file.string(),
                kind.section, kind.section, kind.folder);
  auto values = read_toml(find_file(kind, name, source.file.parent_path()), kind.section + ".");
  for (const Assignment& value : values) {
    require_input(value.key != kind.section + ".name", "{}: a {} file has no key name; its file name is its name",
                  value.origin.text(), kind.section);
  }
  return values;
}

/// Path of the recorded loads as seen from the working folder.
void resolve_trace(Case& c, const fs::path& case_folder) {
  if (c.routing.trace.empty()) return;
  const fs::path plain = c.routing.trace;
  for (const fs::path& place : {case_folder / plain, case_folder / ".." / "traces" / plain, plain}) {
    if (fs::is_regular_file(place)) {
      c.routing.trace = place.lexically_normal().string();
      return;
    }
  }
  throw InputError(
      fmt::format("routing.trace = \"{}\": no such file beside the case file, in {} or in the working folder",
                  c.routing.trace, (case_folder / ".." / "traces").lexically_normal().string()));
}

/// Path of the decisions to replay as seen from the working folder.
void resolve_replay(Case& c, const fs::path& case_folder) {
  std::string& file = c.provisioning.options.replay_file;
  if (file.empty()) return;
  for (const fs::path& place : {case_folder / file, fs::path(file)})
    if (fs::is_regular_file(place)) {
      file = place.lexically_normal().string();
      return;
    }
  throw InputError(
      fmt::format("replay.file = \"{}\": no such file beside the case file or in the working folder", file));
}

Value value_of_json(const Json& json) {
  Value value;
  value.text = json.dump();
  if (json.is_boolean()) value.data = json.get<bool>();
  if (json.is_number_integer() &&
      (!json.is_number_unsigned() || json.get<std::uint64_t>() <= std::uint64_t{INT64_MAX})) {
    value.data = json.get<std::int64_t>();
  } else if (json.is_number()) {
    value.data = json.get<double>();
  }
  if (json.is_string()) value.data = json.get<std::string>();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(value_of_json(item));
    value.data = std::move(items);
  }
  return value;
}

}  // namespace

Case read_case(const CaseSource& source) {
  std::vector<Assignment> in_case = read_toml(source.file, "");
  for (Assignment& assignment : in_case) expand_short_key(assignment);
  const std::vector<Assignment> settings = read_settings(source.settings);
  std::vector<Assignment> given = in_case;
  given.insert(given.end(), settings.begin(), settings.end());

  Case c;
  c.name = source.file.stem().string();
  for (const Assignment& a : given) assign(c, a);  // first alone, so that a mistyped key is named before a missing file
  for (const Kind& kind : {Kind{"model", "models"}, Kind{"machine", "machines"}}) {
    for (const Assignment& a : read_named_file(kind, given, source)) assign(c, a);
  }
  for (const Assignment& a : given) assign(c, a);
  resolve_trace(c, source.file.parent_path());
  resolve_replay(c, source.file.parent_path());
  return c;
}

std::string canonical_text(const Case& c) {
  try {
    return config_json(c).dump();
  } catch (const Json::type_error& error) {  // text that is not UTF-8
    throw InputError(fmt::format("the case holds text that is not UTF-8: {}", error.what()));
  }
}

Case parse_case(const std::string& canonical) {
  Case c;
  const Json config = Json::parse(canonical);
  for (const Option& option : option_table()) {
    assign(c, {option.key, value_of_json(config.at(pointer_of(option))), {"configuration"}});
  }
  return c;
}

}  // namespace spillway::app
