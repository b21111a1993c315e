#pragma once
// Fused dual-batch order (BaGuaLu-2, arXiv 2610.23064): in steady state the forward pass of one micro-batch is issued side
// by side with the backward pass of another, so that each hides the other's messages and copies.
#include "plan/schedule/schedule.hpp"

namespace spillway {

/// Forwards that `stage` runs before its first unit: one more than interleaved 1F1B, which makes the two halves of a unit
/// independent. With one chunk as many per stage as interleaving has, 2 (stages - stage - 1) + 1: with one per stage, a
/// unit would wait for the one of the next stage that waits for the unit before it, and neighbours would take turns.
int warm_up_of_units(const ScheduleShape& shape, int stage);

/// Interleaved 1F1B after that warm-up, every steady forward fused with the backward after it. A stage without steady state
/// (micro_batches x chunks <= warm-up) has no units.
Schedule fused_units(const ScheduleShape& shape);

/// Replaces every unit by its backward and then its forward task.
Schedule in_turn(Schedule schedule);

/// The same as published: a barrier after every unit, and with one chunk one more warm-up forward only.
Schedule fused_units_with_barriers(const ScheduleShape& shape);

/// Stages on which no unit is fused: too few micro-batches for their warm-up.
std::vector<int> stages_without_units(const Schedule& schedule);

}  // namespace spillway
