#pragma once
// Policies that decide by chance, and runs of policies that are in no table.
#include <functional>
#include <map>
#include <memory>

#include "campaign_cases.hpp"
#include "run/projection.hpp"

namespace spillway::test {

/// Who decides: a rank of the job, and the expert and tensor-parallel groups it belongs to.
struct Decider {
  int rank = 0, group = 0, tensor_group = 0;
};

/// Every saved tensor kept, recomputed or offloaded as its rank alone draws it, for each (iteration, layer, micro-batch)
/// and side of the gate; what adds or drops a collective as its group draws it: dispatching again
/// and slices the expert group, what a tensor-parallel collective brings back that group.
class RandomPolicy final : public Policy {
 public:
  struct Options {
    std::uint64_t seed = 1;
    double slices = 0.3;  ///< share of dispatches in slices of a random number of tiles
    bool keeps = true;    ///< false: everything is recomputed
  };
  RandomPolicy(Options options, Decider who) : options_(options), who_(who) {}

  bool obeys_cap() const override { return false; }
  Mitigations decide(const Situation& s) override;

 private:
  Mitigations local(const Situation& s) const;
  /// Recomputes the shared tensors or not, as their group draws.
  void draw_for_all(Draw& group, const TensorSet& shared, Mitigations& m) const;

  Options options_;
  Decider who_;
};

using PolicyOf = std::function<std::unique_ptr<Policy>(Decider)>;
PolicyOf random_policies(RandomPolicy::Options options);

/// Peaks of one rank.
struct RankPeaks {
  std::int64_t total = 0, activation = 0, predicted_activation = 0;
  bool operator==(const RankPeaks&) const = default;
};

/// A policy of a test from the first iteration to the last, without restarts.
struct PlainRun {
  std::map<std::int64_t, std::uint64_t> checksums;
  std::vector<Seconds> seconds;     ///< [iterations]
  std::vector<RankPeaks> peaks;     ///< [ranks], on every rank
  std::vector<std::string> faults;  ///< broken promises, and iterations out of memory
  std::int64_t slices = 0;          ///< dispatches in slices on this rank
  std::string decisions;            ///< of all ranks, as --decisions writes them; on rank 0
};
/// Freed memory is poisoned. Collective over the world.
PlainRun run_policy(const Trial& trial, const PolicyOf& policy_of, Watchdog* watchdog = nullptr);

/// The same without data.
struct PlainProjection {
  std::vector<Seconds> seconds;
  std::vector<Bytes> activation_peaks;  ///< [ranks]
};
PlainProjection project(const Trial& trial, const PolicyOf& policy_of);

}  // namespace spillway::test
