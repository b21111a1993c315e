#pragma once
// The static baselines as functions of a stage: what each would do, by its own model of time.
#include "plan/policy/fastest_plan.hpp"

namespace spillway {

/// unified: flexible's mitigations, chosen once for options.worst_load x balance (or facts.load where that is more).
/// `added` is what greedy's exposed_seconds predicts.
StaticChoice plan_unified(const StageFacts& facts, const PolicyOptions& options);

/// kuai: a checkpointing knob and an offload fraction for the stage, at facts.load. `added` is recompute and what of the
/// copies the neighbouring passes do not hide.
StaticChoice plan_kuai(const StageFacts& facts, const PolicyOptions& options);

/// adapipe: the knapsack of units that are saved, at facts.load. `added` is the recompute of all others.
StaticChoice plan_adapipe(const StageFacts& facts);

}  // namespace spillway
