#pragma once
// The seam for provisioning policies: a pure decision about what becomes of a block's tensors between its forward and its
// backward pass.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_counts.hpp"
#include "plan/cost/machine_profile.hpp"
#include "plan/policy/options.hpp"
#include "plan/program/stage_memory.hpp"
#include "workload/shape/slices.hpp"

namespace spillway {

/// What every member of an expert group says at the gate, beside its rows per expert: limits that its share of the
/// group's choice must keep, and what it can no longer take back.
struct Offer {
  Budget budget;
  TensorSet offloaded, quantized;  ///< before the gate, for good
  bool in_turn = false;            ///< no room for the passes of the next fused unit side by side
};

/// Rows of a block's experts on this rank as earlier micro-batches of the run had them, newest last.
class LoadHistory {
 public:
  void observe(int block, ExpertRows rows) { rows_[static_cast<std::size_t>(block)].push_back(rows); }
  explicit LoadHistory(std::size_t blocks) : rows_(blocks) {}
  std::span<const ExpertRows> of(int block) const { return rows_[static_cast<std::size_t>(block)]; }
  /// The most rows that any block had in its last `micro_batches`; 0 where there were none.
  std::int64_t most(int micro_batches) const;

 private:
  std::vector<std::vector<ExpertRows>> rows_;
};

/// What a policy may know when it decides about one block of one micro-batch. It never sees a clock.
struct Situation {
  const StageBlock& block;
  int index = 0;  ///< of the block on its stage
  int micro_batch = 0;
  std::int64_t iteration = 0;
  const StageMemory& books;
  Budget budget;  ///< keeps the rest of the iteration possible
  Bytes alignment;
  const MachineProfile& machine;
  const LoadHistory& history;
  // after the gate; before it, and in blocks without one, null
  const Mitigations* before = nullptr;  ///< decided before the gate
  const GateTable* table = nullptr;
  std::span<const Offer> offers;         ///< [members]
  int member = 0;                        ///< of this rank in the expert group
  std::span<const ExpertRows> received;  ///< [members] the table's rows by member, of the whole dispatch
  DispatchRows* dispatch = nullptr;      ///< the table's rows in slices of any size
};

/// What a policy may prepare for: the stage it will decide about.
struct StageFacts {
  std::span<const StageBlock> blocks;
  std::span<const Task> order;
  const StageMemory& books;  ///< at the start of an iteration
  Bytes alignment;
  const MachineProfile& machine;
  double load = 1;  ///< x balance: what a static plan has to fit
};

class Policy {
 public:
  virtual ~Policy() = default;
  /// Once before the first decision of every life of a rank.
  virtual void prepare(const StageFacts&) {}
  /// Asked before the forward pass of every block, and again after its gate. What was not kept before the gate stays as it
  /// was decided. A choice that adds or drops a collective (slices, fc1_input recomputed) must be a function of the table
  /// and the offers alone, or of nothing.
  virtual Mitigations decide(const Situation& situation) = 0;
  /// False for a reference that may use more memory than the cap.
  virtual bool obeys_cap() const { return true; }
  /// True where it fits whatever the loads are, as long as the least treatment fits at the worst; false where a static
  /// plan has to fit at the load it is prepared for.
  virtual bool adapts() const { return false; }
  /// True where prepare() makes a plan for StageFacts::load: what the margin curve varies.
  virtual bool plans_for_load() const { return false; }
  /// False where quantized tensors make gradients inexact.
  virtual bool exact() const { return true; }
  virtual CacheCounts cache() const { return {}; }
};

/// One line per policy: the only place that knows them all.
struct PolicyEntry {
  std::string_view name;
  std::string_view meaning;
  std::unique_ptr<Policy> (*make)(const PolicyOptions&);
  bool ranked = true;  ///< false for references that no real system could be
};
std::span<const PolicyEntry> policy_table();

std::vector<std::string> policy_names();
/// Throws InputError that lists the names when there is no such policy.
const PolicyEntry& find_policy(std::string_view name);
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options = {});

}  // namespace spillway
