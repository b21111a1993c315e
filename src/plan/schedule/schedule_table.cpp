#include "plan/schedule/schedule_table.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "plan/schedule/fused_units.hpp"
#include "plan/schedule/gpipe.hpp"
#include "plan/schedule/interleaved.hpp"

namespace spillway {

std::span<const ScheduleEntry> schedule_table() {
  static constexpr std::array table = {
      ScheduleEntry{"1f1b", "one forward, one backward; interleaved where a stage has several chunks",
                    interleaved_one_forward_one_backward, true},
      ScheduleEntry{"dual_batch", "1f1b with every steady forward beside the backward after it, and one more warm-up",
                    fused_units, true},
      ScheduleEntry{"dual_batch_published", "dual_batch with a barrier after every pair", fused_units_with_barriers,
                    true},
      ScheduleEntry{"gpipe", "all forwards, then all backwards", gpipe, false},
  };
  return table;
}

const ScheduleEntry& find_schedule(std::string_view name) {
  const auto table = schedule_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [name](const ScheduleEntry& e) { return e.name == name; });
  if (found != table.end()) return *found;
  std::vector<std::string_view> names;
  for (const ScheduleEntry& e : table) names.push_back(e.name);
  throw InputError(
      fmt::format("schedule = \"{}\": there is no such order of work; known: {}", name, fmt::join(names, ", ")));
}

}  // namespace spillway
