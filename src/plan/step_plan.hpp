#pragma once
// What a rank does next, with which mitigation, and the books: bytes promised by every instruction issued so far.
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/ledger.hpp"
#include "plan/program/block_program.hpp"
#include "plan/policy/policy.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// The books of one rank: closed at issue, by the operator table alone.
class Books {
 public:
  explicit Books(Bytes alignment) : ledger_(alignment) {}

  void add(Tensor t, const BlockContext& c, ExpertRows rows) { ledger_.add(category(t, c), bytes(t, c, rows)); }
  void remove(Tensor t, const BlockContext& c, ExpertRows rows) { ledger_.remove(category(t, c), bytes(t, c, rows)); }
  void open(const Instruction& instruction, const BlockContext& c, ExpertRows rows) {
    for (const Tensor t : instruction.allocate) add(t, c, rows);
  }
  void close(const Instruction& instruction, const BlockContext& c, ExpertRows rows) {
    for (const Tensor t : instruction.release) remove(t, c, rows);
  }
  ByteLedger& ledger() { return ledger_; }
  const ByteLedger& ledger() const { return ledger_; }

 private:
  ByteLedger ledger_;
};

/// Turns a policy's decisions into programs and remembers which one every (micro-batch, block) runs.
class StepPlan {
 public:
  StepPlan(std::vector<StageBlock> blocks, const Policy& policy) : blocks_(std::move(blocks)), policy_(&policy) {}

  std::span<const StageBlock> blocks() const { return blocks_; }
  /// Decides how a block treats a micro-batch that is about to go forward.
  const BlockProgram& decide(int micro_batch, int block);
  /// The decision in force.
  const BlockProgram& program(int micro_batch, int block) const { return *in_force_.at({micro_batch, block}); }

 private:
  std::vector<StageBlock> blocks_;
  const Policy* policy_;
  std::map<std::pair<int, int>, const BlockProgram*> in_force_;
  std::map<std::pair<int, unsigned long long>, BlockProgram> compiled_;  // by block and kept tensors
};

/// Rows of a block's experts on the rank in question.
using RowsOf = std::function<ExpertRows(int micro_batch, const StageBlock& block)>;

/// Balanced load times `margin`.
ExpertRows balanced_rows(const BlockContext& context, double margin);

/// The books of one iteration of a stage, static memory and gradient reduction included, without running it.
ByteLedger forecast_memory(StepPlan& plan, std::span<const Task> order, const RankElements& elements, Bytes alignment,
                           const RowsOf& rows);

/// Static memory of a rank: what forecast_memory and the executor open the books with.
void add_static_memory(ByteLedger& ledger, const RankElements& elements, std::int64_t bytes_per_element);

}  // namespace spillway
