#pragma once
// Remembers orders of fused dual batches: the phases of a pipeline repeat, and so do their windows, nearly.
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/cache_counts.hpp"
#include "plan/schedule/compaction.hpp"
#include "plan/schedule/interleave.hpp"

namespace spillway {

/// `batch` with every duration replaced by the nearest of 16 steps per power of two, at equal ratios; zero stays zero.
/// Comparisons of doubles alone decide, so that machines agree.
DualBatch discretized(const DualBatch& batch);

/// What was found for the discretized durations of a window.
struct FusedPlan {
  Compaction compaction;
  Interleaving interleaving;  ///< of its segments
};

/// Looks windows up by structure, discretized durations and interference. What it answers is a function of these alone,
/// never of what it was asked before: ranks that ask for the same window get the same order.
///
/// The order takes at most 2^(1/16) times (+4.4 %) the least makespan of the same segments with their real durations:
/// makespans grow with durations and scale with them, and a duration moves by at most 2^(1/32) either way.
class InterleavingCache {
 public:
  struct Options {
    CompactionOptions compaction;
    std::size_t capacity = 1 << 14;  ///< windows remembered; all are forgotten when it is full
  };
  explicit InterleavingCache(const Options& options) : options_(options) {}
  InterleavingCache() : InterleavingCache(Options()) {}

  /// The plan of a window of operators, valid until the next call. Throws as validate(batch).
  const FusedPlan& operator()(const DualBatch& operators);
  CacheCounts counts() const { return counts_; }

 private:
  using Key = std::vector<std::uint32_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  Options options_;
  Interleaver interleaver_;
  std::unordered_map<Key, FusedPlan, Hash> plans_;
  Key key_;  ///< of the last call; here for its storage
  CacheCounts counts_;
};

}  // namespace spillway
