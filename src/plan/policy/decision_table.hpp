#pragma once
// Decisions made elsewhere, to be carried out: by another planner and read from a file, or found in hindsight.
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "plan/program/mitigations.hpp"

namespace spillway {

/// One (micro-batch, block) of one iteration on one rank.
struct Decision {
  Mitigations before, after;  ///< the gate
};

class DecisionTable {
 public:
  using Key = std::array<std::int64_t, 3>;  ///< iteration, micro-batch, block of the stage
  void set(const Key& key, const Decision& decision) { decisions_[key] = decision; }
  /// Whether some rank of the job quantizes, so that gradients are not exact.
  bool quantizes() const { return quantizes_; }
  void set_quantizes() { quantizes_ = true; }
  /// Null where nothing was decided.
  const Decision* find(const Key& key) const {
    const auto found = decisions_.find(key);
    return found == decisions_.end() ? nullptr : &found->second;
  }
  void add(const DecisionTable& part) { decisions_.insert(part.decisions_.begin(), part.decisions_.end()); }
  DecisionTable of_iteration(std::int64_t iteration) const {
    DecisionTable part;
    for (const auto& [key, d] : decisions_)
      if (key[0] == iteration) part.set(key, d);
    return part;
  }

  /// As numbers, for messages between ranks.
  void append_to(std::vector<std::int64_t>& numbers) const;
  void add_from(std::span<const std::int64_t> numbers);

 private:
  std::map<Key, Decision> decisions_;
  bool quantizes_ = false;
};

}  // namespace spillway
