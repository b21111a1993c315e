#include "plan/policy/policy.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/nearest.hpp"

namespace spillway {

std::int64_t LoadHistory::most(int micro_batches) const {
  std::int64_t most = 0;
  for (const auto& of_block : rows_) {
    const std::size_t last = std::min(of_block.size(), static_cast<std::size_t>(micro_batches));
    for (const ExpertRows& r : std::span(of_block).last(last)) most = std::max(most, r.rows);
  }
  return most;
}

const PolicyEntry& find_policy(std::string_view name) {
  const auto table = policy_table();
  const auto entry = std::find_if(table.begin(), table.end(), [name](const PolicyEntry& e) { return e.name == name; });
  require_input(entry != table.end(), "provisioning policy '{}' is not known; known: {}", name,
                fmt::join(policy_names(), ", "));
  return *entry;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policy_table()) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options) {
  return find_policy(name).make(options);
}

}  // namespace spillway
