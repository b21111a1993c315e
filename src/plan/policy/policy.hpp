#pragma once
// The seam for provisioning policies: a pure decision about which tensors a block keeps for its backward pass.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workload/shape/operator_table.hpp"

namespace spillway {

/// What a policy may know when it decides about one block of one micro-batch. It never sees a clock.
struct Situation {
  BlockKind kind;
  const BlockContext& context;
  int micro_batch = 0;
};

/// The decision: tensors that may stay in device memory from forward to backward; the rest is recomputed.
struct Mitigations {
  TensorSet keep;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Mitigations decide(const Situation& situation) const = 0;
  /// False for a reference that may use more memory than the cap.
  virtual bool obeys_cap() const { return true; }
};

/// One line per policy: the only place that knows them all.
struct PolicyEntry {
  std::string_view name;
  std::string_view meaning;
  std::unique_ptr<Policy> (*make)();
};
std::span<const PolicyEntry> policy_table();

std::vector<std::string> policy_names();
/// Throws InputError that lists the names when there is no such policy.
std::unique_ptr<Policy> make_policy(std::string_view name);

}  // namespace spillway
