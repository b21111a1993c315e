#pragma once
// What static planners choose by: how long a stage's passes take, what a plan adds to them, and whether it fits.
#include <vector>

#include "plan/policy/static_plan.hpp"

namespace spillway {

/// Rows of a block's experts at `load` x balance; none in blocks without experts.
ExpertRows rows_of(const StageBlock& block, double load);

/// One micro-batch through a chunk at `load` x balance with everything kept: compute and messages one after the other.
struct PassSeconds {
  Seconds forward, backward;
};
std::vector<PassSeconds> pass_seconds(const StageFacts& facts, double load);  ///< [chunks]

/// Seconds of what a block's backward pass computes again under `mitigations`, for one micro-batch; messages included.
Seconds recompute_seconds(const StageFacts& facts, const StageBlock& block, const Mitigations& mitigations,
                          double load);

/// Micro-batches of an iteration.
int micro_batches(const StageFacts& facts);

/// A plan with a treatment per block, the same for all micro-batches.
struct StaticChoice {
  std::vector<Mitigations> plan;
  Seconds added;  ///< to an iteration of the stage, by the policy's own model
  StaticPeak peak;
  bool fits = false;  ///< peak is within both caps
};

/// Of the plans it is shown, the fastest that fits at `load` x balance; of those alike the first. Where none fits, the one
/// that needs the least device memory, among those the host tier can take. If what is shown does not depend on the cap, a
/// larger cap never makes the result slower. Every rank of a stage has the same facts, hence the same result: it may add
/// or drop collectives.
class FastestPlan {
 public:
  FastestPlan(const StageFacts& facts, double load) : facts_(facts), load_(load) {}
  void consider(const std::vector<Mitigations>& plan, Seconds added);
  const StaticChoice& best() const { return best_; }

 private:
  const StageFacts& facts_;
  double load_;
  StaticChoice best_;
};

}  // namespace spillway
