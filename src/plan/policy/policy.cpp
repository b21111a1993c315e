#include "plan/policy/policy.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace spillway {

std::unique_ptr<Policy> make_keep();
std::unique_ptr<Policy> make_oracle();
std::unique_ptr<Policy> make_selective();
std::unique_ptr<Policy> make_full();

std::span<const PolicyEntry> policy_table() {
  static constexpr std::array<PolicyEntry, 4> table = {{
      {"oracle", "keep everything, without a memory cap: the reference for time", make_oracle},
      {"keep", "keep everything that backward reads", make_keep},
      {"selective", "recompute norms and SwiGLU, keep the rest", make_selective},
      {"full", "keep block inputs, recompute the rest up to fc2's input", make_full},
  }};
  return table;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policy_table()) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Policy> make_policy(std::string_view name) {
  const auto table = policy_table();
  const auto entry = std::find_if(table.begin(), table.end(), [name](const PolicyEntry& e) { return e.name == name; });
  require_input(entry != table.end(), "provisioning policy '{}' is not known; known: {}", name,
                fmt::join(policy_names(), ", "));
  return entry->make();
}

}  // namespace spillway
