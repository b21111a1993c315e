#pragma once
// Fused dual-batch order (BaGuaLu-2, arXiv 2610.23064): in steady state the forward pass of one micro-batch is issued side
// by side with the backward pass of another, so that each hides the other's messages and copies.
#include "plan/schedule/schedule.hpp"

namespace spillway {

/// Interleaved 1F1B with one more warm-up forward, which makes the two halves of a unit independent, and every steady
/// forward fused with the backward after it. A stage without steady state (micro_batches x chunks <= warm-up) has no units.
Schedule fused_units(const ScheduleShape& shape);

/// Stages on which no unit is fused: too few micro-batches for their warm-up.
std::vector<int> stages_without_units(const Schedule& schedule);

}  // namespace spillway
