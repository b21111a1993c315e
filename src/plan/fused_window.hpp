#pragma once
// The order in which two passes are issued side by side: one block forward, another backward.
#include <array>
#include <deque>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/array_hash.hpp"
#include "plan/cost/machine_profile.hpp"
#include "plan/program/block_program.hpp"
#include "plan/program/stage.hpp"
#include "plan/schedule/interleaving_cache.hpp"

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
  const std::vector<IssuedPart>& parts;
  std::size_t done = 0;  ///< parts that have been issued
  int block = 0;         ///< of the stage
  ExpertRows rows{};     ///< of the group's most loaded member

  std::span<const IssuedPart> rest() const { return std::span(parts).subspan(done); }
};

/// Finds the orders of a stage's windows and remembers them. Everything it looks at is the same on all ranks of an expert
/// group: the largest load, the operators of the block, and which exchanges are repeated or sliced. What a rank recomputes
/// or copies on its own goes along with the operator after it, and so does what a tensor-parallel group recomputes together.
/// So exchanges come in one order on the whole group, and messages of a tensor-parallel group that lies within it; where it
/// does not, the backward half goes first.
class WindowPlanner {
 public:
  WindowPlanner(std::vector<StageBlock> blocks, MachineProfile machine);

  /// parts_of, remembered: the instructions must stay where they are as long as the planner.
  const std::vector<IssuedPart>& parts(const std::vector<Instruction>& instructions, int block);
  /// For every part of both halves that is left, in the order of issue, whether it is the backward half's. The order within
  /// a half stays. The halves' parts must come from parts().
  const std::vector<bool>& issue_order(const WindowHalf& forward, const WindowHalf& backward);

 private:
  struct Durations {
    Seconds before, network, after;  ///< computation, message, computation
  };
  /// Segments of a half, and the part that each belongs to.
  struct Chain {
    std::vector<Segment> segments;
    std::vector<std::size_t> parts;
    std::uint64_t kind = 0;  ///< the same for the same segments
  };
  /// The number of a half's chain among chains_.
  std::size_t chain_of(const WindowHalf& half);
  Chain make_chain(const WindowHalf& half);
  std::uint64_t kind_of(const std::vector<Segment>& segments);
  /// The order of two chains' segments.
  const IssueOrder& segment_order(const Chain& forward, const Chain& backward);
  const Durations& durations(const WindowHalf& half, const Instruction& instruction);
  std::vector<bool> find_order(const std::array<const WindowHalf*, 2>& halves,
                               const std::array<const Chain*, 2>& chains);
  ExpertRows rounded(const WindowHalf& half) const;

  std::vector<StageBlock> blocks_;
  std::vector<int> alike_;  ///< [block]: the first with the same context
  MachineProfile machine_;
  InterleavingCache orders_;
  std::unordered_map<const std::vector<Instruction>*, std::vector<IssuedPart>> parts_;
  std::deque<Chain> chains_;
  std::map<std::vector<std::pair<Lane, double>>, std::uint64_t> kinds_;  ///< by segments
  using Pair = std::array<std::uint64_t, 2>;
  std::unordered_map<Pair, IssueOrder, ArrayHash> segment_orders_;  ///< by both kinds
  std::unordered_map<std::array<std::uint64_t, 4>, std::size_t, ArrayHash>
      numbers_;                                                                 ///< by parts, done, block and rows
  std::unordered_map<Pair, std::vector<bool>, ArrayHash> known_;                ///< by both chains
  std::map<std::tuple<int, Op, PassKind, std::int64_t>, Durations> durations_;  ///< by block, operator, pass and rows
};

}  // namespace spillway
