#pragma once
// The order in which the instructions of two passes are issued side by side: one block forward, another backward.
#include <span>
#include <vector>

#include "plan/cost/machine_profile.hpp"
#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// What is still to be issued of one pass.
struct WindowHalf {
  std::span<const Instruction> instructions;
  const StageBlock& block;
  ExpertRows rows;  ///< of the group's most loaded member, so that the whole group finds one order of exchanges
};

/// For every instruction of both halves, in the order of issue, whether it is the backward half's. The order within a half
/// stays. Exchanges of the two come in an order that depends on nothing that differs within an expert group.
std::vector<bool> issue_order(const WindowHalf& forward, const WindowHalf& backward, const MachineProfile& machine);

}  // namespace spillway
