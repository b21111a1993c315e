#pragma once
// The one table of options. The reader of case files, --set, --help and the echo of the configuration all come from it.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "app/value.hpp"
#include "run/case.hpp"

namespace spillway::app {

using Json = nlohmann::ordered_json;

struct Option {
  std::string key;   ///< as in a case file: "model.hidden_size"
  std::string kind;  ///< "integer", "number", "size", "time", "text", "true/false", "list of ..."; or the words allowed
  std::string unit;  ///< empty where the kind says enough
  std::string meaning;
  Limits limits;         ///< of numbers
  bool compared = true;  ///< false for what results that are compared may differ in: names, the list of policies
  std::function<void(Case&, const Value&)> store;  ///< converts, checks the limits and assigns; throws Refusal
  std::function<Json(const Case&)> load;
  bool is_numeric() const { return kind == "integer" || kind == "number" || kind == "size" || kind == "time"; }
};

/// Every option, grouped by section in the order of --help.
const std::vector<Option>& option_table();

/// The option of `key`, or nullptr.
const Option* find_option(std::string_view key);

/// Sets one value. Throws InputError that names key, value and origin; an unknown key names the nearest known one.
void assign(Case& c, const Assignment& assignment);

/// Where the option stands in config_json: "/model/hidden_size".
Json::json_pointer pointer_of(const Option& option);

/// The configuration as nested JSON: config_json(c)["model"]["hidden_size"].
Json config_json(const Case& c);

/// What results must share to be compared, with keys sorted: the configuration without the options that may differ (a
/// model or machine counts by its values, recorded loads by the name of their file), and the kind of data.
std::string comparable_text(const Case& c, std::string_view data = "real");

/// Text of --help: every option with default, unit, range and meaning.
std::string option_help();

}  // namespace spillway::app
