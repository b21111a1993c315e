// The table of policies.
#include <algorithm>

#include "base/error.hpp"
#include "plan/policy/policy.hpp"

namespace spillway {

std::unique_ptr<Policy> make_oracle(const PolicyOptions&);
std::unique_ptr<Policy> make_keep(const PolicyOptions&);
std::unique_ptr<Policy> make_selective(const PolicyOptions&);
std::unique_ptr<Policy> make_full(const PolicyOptions&);
std::unique_ptr<Policy> make_full_in_slices(const PolicyOptions&);
std::unique_ptr<Policy> make_unified(const PolicyOptions&);
std::unique_ptr<Policy> make_kuai(const PolicyOptions&);
std::unique_ptr<Policy> make_adapipe(const PolicyOptions&);
std::unique_ptr<Policy> make_paged(const PolicyOptions&);
std::unique_ptr<Policy> make_flexible(const PolicyOptions&);
std::unique_ptr<Policy> make_flexible_greedy(const PolicyOptions&);
std::unique_ptr<Policy> make_flexible_ratio(const PolicyOptions&);
std::unique_ptr<Policy> make_replay(const PolicyOptions&);

/// Those of SPILLWAY_EXTRA_POLICIES; cmake/SpillwayPolicies.cmake makes it.
std::vector<PolicyEntry> extra_policies();

namespace {

std::vector<PolicyEntry> with_extra(std::vector<PolicyEntry> table) {
  for (const PolicyEntry& extra : extra_policies()) {
    const bool taken =
        std::any_of(table.begin(), table.end(), [&](const PolicyEntry& e) { return e.name == extra.name; });
    require_input(!taken, "SPILLWAY_EXTRA_POLICIES adds a policy \"{}\", a name that is taken; rename it in its file",
                  extra.name);
    table.push_back(extra);
  }
  return table;
}

}  // namespace

std::span<const PolicyEntry> policy_table() {
  static const std::vector<PolicyEntry> table = with_extra({
      {"oracle", "keep everything, without a memory cap: the reference for time", make_oracle, false},
      {"keep", "keep everything that backward reads", make_keep},
      {"selective", "recompute norms and SwiGLU, keep the rest", make_selective},
      {"full", "keep block inputs, recompute the rest up to fc2's input", make_full},
      {"full:slices", "the same, dispatching in slices of one tile: fits at any load", make_full_in_slices},
      {"unified", "BaGuaLu-2 without its decisions at run time: per operator, once for unified.worst_load",
       make_unified},
      {"kuai", "Megatron-Kuai: norms and SwiGLU or all recomputed, a fraction offloaded, planned once", make_kuai},
      {"adapipe", "AdaPipe: the units to recompute by a knapsack, planned once", make_adapipe},
      {"paged", "Megatron-LM's paged stashing: a pool of expert activations that spills to the host", make_paged},
      {"flexible", "BaGuaLu-2: per operator and micro-batch at run time, by flexible.choice", make_flexible},
      {"flexible:greedy", "the same, largest memory reduction first, as published", make_flexible_greedy},
      {"flexible:ratio", "the same, least exposed time per byte freed first", make_flexible_ratio},
      {"replay", "decisions read from replay.file", make_replay},
      {"hindsight", "the best found by a search that knows every load in advance; not ranked", make_replay, false},
  });
  return table;
}

}  // namespace spillway
