#pragma once
// What static planners share: one treatment per block for all micro-batches, and whether it fits.
#include <vector>

#include "plan/policy/policy.hpp"

namespace spillway {

/// Rows of a block's experts at `load` x balance, at most what the router can send.
ExpertRows rows_at(const BlockContext& context, double load);

/// Peak device and host bytes of an iteration of the stage in which every micro-batch is treated the same; `plan` has an
/// entry per block. Static memory included.
struct StaticPeak {
  Bytes device, host;
};
StaticPeak static_peak(const StageFacts& facts, const std::vector<Mitigations>& plan, double load);

/// A policy whose whole plan is made before the first iteration.
class StaticPlanner : public Policy {
 public:
  void prepare(const StageFacts& facts) final { plan_ = plan(facts); }
  bool plans_for_load() const final { return true; }
  Mitigations decide(const Situation& s) final { return plan_[static_cast<std::size_t>(s.index)]; }

 protected:
  /// A treatment per block; where nothing fits at facts.load, the one that needs least.
  virtual std::vector<Mitigations> plan(const StageFacts& facts) = 0;

 private:
  std::vector<Mitigations> plan_;
};

}  // namespace spillway
