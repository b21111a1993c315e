#pragma once
// The order in which two passes are issued side by side: one block forward, another backward.
#include <span>
#include <vector>

#include "plan/cost/machine_profile.hpp"
#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"

namespace spillway {

/// An exchange of rows has two parts: what is sent, and what is done with what has come. Between them a window issues
/// other work.
enum class Part : unsigned char { whole, begin, end };

struct IssuedPart {
  const Instruction* instruction;
  Part part = Part::whole;
};
/// The instructions of a pass, its exchanges in two parts where the expert group has several ranks.
std::vector<IssuedPart> parts_of(const std::vector<Instruction>& instructions, const BlockContext& context);

/// What is still to be issued of one pass.
struct WindowHalf {
  std::span<const IssuedPart> parts;
  const StageBlock& block;
  ExpertRows rows;  ///< of the group's most loaded member, so that the whole group finds one order of exchanges
};

/// For every part of both halves, in the order of issue, whether it is the backward half's. The order within a half stays.
/// Exchanges of the two come in an order that depends on nothing that differs within an expert group.
std::vector<bool> issue_order(const WindowHalf& forward, const WindowHalf& backward, const MachineProfile& machine);

}  // namespace spillway
