#include "workload/routing/presets.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace spillway {
namespace {

constexpr Preset table[] = {
    {"balanced"},
    {"hot_experts", HotSet::one_per_block, HotWhen::always},
    {"hot_rank", HotSet::block, HotWhen::always},
    {"spread", HotSet::spread, HotWhen::always},
    {"empty", HotSet::empty, HotWhen::always},
    {"rotating", HotSet::moving_block, HotWhen::always},
    {"burst", HotSet::block, HotWhen::bursts, true},
    {"trace", HotSet::none, HotWhen::never, false, true},
};

/// Insertions, deletions and replacements that turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Preset> presets() { return table; }

const Preset& find_preset(std::string_view name) {
  const auto found = std::ranges::find(table, name, &Preset::name);
  if (found != std::end(table)) return *found;
  const auto nearest =
      std::ranges::min_element(table, {}, [name](const Preset& p) { return edit_distance(name, p.name); });
  std::vector<std::string_view> names;
  for (const Preset& preset : table) names.push_back(preset.name);
  throw InputError(fmt::format("routing.preset = '{}' is unknown: did you mean '{}'? There are {}", name, nearest->name,
                               fmt::join(names, ", ")));
}

}  // namespace spillway
