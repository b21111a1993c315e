#pragma once
// The pipeline orders that a case may name: one line each.
#include <string>
#include <string_view>
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace spillway {

struct ScheduleEntry {
  std::string_view name;
  std::string_view meaning;
  Schedule (*make)(const ScheduleShape&);
  bool interleaves = false;  ///< takes stages of several chunks
};
std::span<const ScheduleEntry> schedule_table();

/// Throws InputError that lists the names when there is no such order.
const ScheduleEntry& find_schedule(std::string_view name);

}  // namespace spillway
