#pragma once
// Settings of the policies that have any.
#include <cstdint>
#include <memory>
#include <string>

#include "base/units.hpp"

namespace spillway {

enum class GreedyChoice : unsigned char {
  greedy,  ///< the paper's: largest memory reduction first
  ratio    ///< least exposed time per byte freed first, then give back what is not needed
};

enum class BudgetShare : unsigned char {
  level,  ///< the same part of what they wish to hold for all blocks that are still to come (StageMemory::level_share)
  published  ///< Algorithm 1: an equal share up to the next backward pass, in steady state all that is left
};

class DecisionTable;

struct PolicyOptions {
  GreedyChoice choice = GreedyChoice::ratio;
  BudgetShare share = BudgetShare::level;
  bool quantize = false;         ///< lets flexible and unified store tensors as FP8; gradients become inexact
  double worst_load = 2.6;       ///< x balance: what unified plans for
  Bytes kuai_smallest{1 << 20};  ///< smaller tensors are not offloaded by kuai
  Bytes paged_pool{0};           ///< of paged's expert activations on the device; 0: what is left at the planned load
  std::string replay_file;       ///< decisions that replay carries out
  std::shared_ptr<const DecisionTable> decisions;  ///< of this rank, for replay and hindsight; not an option
  bool operator==(const PolicyOptions& o) const {
    return choice == o.choice && share == o.share && quantize == o.quantize && worst_load == o.worst_load &&
           kuai_smallest == o.kuai_smallest && paged_pool == o.paged_pool && replay_file == o.replay_file;
  }
};

}  // namespace spillway
