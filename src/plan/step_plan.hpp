#pragma once
// What a rank does next, with which mitigation, and the books: bytes promised by every instruction issued so far.
#include <array>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/ledger.hpp"
#include "plan/policy/policy.hpp"
#include "plan/program/buckets.hpp"
#include "plan/program/program_cache.hpp"

namespace spillway {

/// The books of one rank: closed at issue, by the operator table alone.
class Books {
 public:
  /// `shared`: the host tier is device memory too.
  explicit Books(Bytes alignment, bool shared = false) : device_(alignment), host_(alignment), shared_(shared) {}

  void add(Tensor t, const BlockContext& c, ExpertRows rows) { device_.add(category(t, c), bytes(t, c, rows)); }
  /// A message that has come or gone.
  void message(Item::Kind kind, const BlockContext& context);
  void remove(Tensor t, const BlockContext& c, ExpertRows rows) { device_.remove(category(t, c), bytes(t, c, rows)); }
  /// Before and after an instruction runs.
  void open(const Instruction& instruction, const BlockContext& c, ExpertRows rows);
  void close(const Instruction& instruction, const BlockContext& c, ExpertRows rows);
  /// What is there before the first iteration and stays: static memory.
  void add_static(const RankElements& elements, std::int64_t bytes_per_element);
  ByteLedger& ledger() { return device_; }
  const ByteLedger& ledger() const { return device_; }
  const ByteLedger& host() const { return host_; }
  /// An iteration is lost: only static memory stays.
  void drop_activations();

 private:
  ByteLedger device_, host_;
  bool shared_;
  Bytes static_communication_;
};

/// Sizes and limits that decide how a stage may be provisioned.
struct StageLimits {
  Bytes alignment;
  Bytes cap, host_cap;
  bool shared_memory = false;  ///< host and device memory are one: offloaded bytes count against the cap
};

/// Turns a policy's decisions into programs and remembers which one every (micro-batch, block) runs.
class StepPlan {
 public:
  struct Setup {
    std::vector<StageBlock> blocks;
    std::vector<Task> order;
    RankElements elements;
    StageLimits limits;
    MachineProfile machine;
    double load = 1;                ///< x balance: what static policies prepare for
    bool may_take_in_turn = false;  ///< fused units, where a member of the expert group has no room for them
  };
  StepPlan(Setup setup, Policy& policy);

  std::span<const StageBlock> blocks() const { return setup_.blocks; }
  const StageLimits& limits() const { return setup_.limits; }
  const RankElements& elements() const { return setup_.elements; }
  std::span<const Task> order() const { return setup_.order; }
  void begin_iteration(std::int64_t iteration);
  /// The item that the stage is about to carry out, and the step past it.
  const Item& current() const { return memory_.current(); }
  const Item& beside_current() const { return memory_.beside_current(); }
  /// Whether a fused unit begins with the current item and is better taken in turn, as in plain 1F1B: at the last gate a
  /// member of the expert group had no room for its passes side by side. The same on all members.
  bool prefers_in_turn() const;
  void take_in_turn() { memory_.take_in_turn(); }
  bool finished() const { return memory_.finished(); }
  void advance() { memory_.advance(); }

  /// Decides how the current forward block treats its micro-batch: all of it, or up to the gate.
  const BlockProgram& decide(int micro_batch, int block);
  /// What this rank says at the gate of the current block.
  Offer offer(int micro_batch, int block) const;
  /// Decides the rest of the block, now that the loads are known. The instructions up to the gate stay the same.
  struct Gate {
    const GateTable& table;
    std::span<const Offer> offers;
    int member = 0;
  };
  const BlockProgram& decide_after_gate(int micro_batch, int block, const Gate& gate);
  /// The second decision for a forecast, where this rank's rows are given: the others of its group share the rest evenly
  /// and can afford what it can.
  const BlockProgram& decide_after_gate_at(int micro_batch, int block, ExpertRows rows);
  /// Both decisions for a forecast.
  const BlockProgram& decide_at(int micro_batch, int block, ExpertRows rows);

  /// The decision in force, and the rows it is for.
  const BlockProgram& program(int micro_batch, int block) const { return *in_force(micro_batch, block).program; }
  const Mitigations& mitigations(int micro_batch, int block) const { return in_force(micro_batch, block).decision; }
  const Mitigations& before_gate(int micro_batch, int block) const { return in_force(micro_batch, block).before; }
  const Budget& budget(int micro_batch, int block) const { return in_force(micro_batch, block).budget; }
  const BlockRows& rows(int micro_batch, int block) const { return in_force(micro_batch, block).rows; }
  /// The largest whole dispatch on any member of the expert group: the same on all of them. Before the gate, balance.
  const ExpertRows& group_rows(int micro_batch, int block) const { return in_force(micro_batch, block).group_rows; }
  const MachineProfile& machine() const { return setup_.machine; }
  /// Whether a (micro-batch, block) has been decided since the plan was made.
  bool decided(int micro_batch, int block) const { return in_force(micro_batch, block).program != nullptr; }
  int micro_batches() const { return static_cast<int>(in_force_.size() / setup_.blocks.size()); }
  const StageMemory& memory() const { return memory_; }
  /// Peak of an iteration in which everything is given up at the worst load, what the tensor-parallel group holds too.
  Bytes least() const { return least_; }
  const Policy& policy() const { return *policy_; }

 private:
  struct InForce {
    const BlockProgram* program = nullptr;
    Mitigations before, decision;
    BlockRows rows;
    ExpertRows group_rows;
    Budget budget;
  };
  InForce& in_force(int mb, int block) {
    return in_force_[static_cast<std::size_t>(mb) * setup_.blocks.size() + block];
  }
  const InForce& in_force(int mb, int block) const {
    return in_force_[static_cast<std::size_t>(mb) * setup_.blocks.size() + block];
  }
  Situation situation(int micro_batch, int block, const Budget& budget) const;
  /// Tells the books what undecided blocks may come to. What decides about units looks at this iteration alone, so that
  /// decisions carried out again find the same order.
  void expect_load();
  Footprint footprint_at(std::size_t block, const Mitigations& decision, std::int64_t rows);
  void enforce(int micro_batch, int block, const BlockDecision& decision);

  Setup setup_;
  Policy* policy_;
  Bytes least_;
  StageMemory memory_;
  LoadHistory history_;
  std::int64_t iteration_ = 0;
  // most rows that a block of this rank has received: in the last iteration's worth of micro-batches, in this iteration
  std::int64_t expected_ = -1, seen_ = 0, least_whole_at_ = -1;
  bool in_turn_ = false;            ///< the next unit, as the group had it at the last gate
  std::vector<InForce> in_force_;   ///< [micro-batch, block]
  std::vector<TensorSet> settled_;  ///< [block], at the gate
  ProgramCache programs_;
};

/// Rows of a block's experts on the rank in question.
using RowsOf = std::function<ExpertRows(int micro_batch, const StageBlock& block)>;

/// Balanced load times `margin`.
ExpertRows balanced_rows(const BlockContext& context, double margin);

/// The books of one iteration of a stage, static memory and gradient reduction included, without running it.
Books forecast_memory(StepPlan& plan, const RowsOf& rows);

/// Static memory of a rank: parameters, gradients, optimizer state, and the receive buffers of overlapped reductions.
void add_static_memory(ByteLedger& ledger, const RankElements& elements, std::int64_t bytes_per_element);
/// The gradient step at the end of an iteration: receive buffers that are not static come and go, group after group.
void add_gradient_step(ByteLedger& ledger, const RankElements& elements);

}  // namespace spillway
