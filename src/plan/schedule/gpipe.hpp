#pragma once
// GPipe (Huang et al., NeurIPS'19): all micro-batches forward, then all backward, for comparison. Every micro-batch is in
// flight at once.
#include "plan/schedule/schedule.hpp"

namespace spillway {

/// Backward passes in the order of the forward passes, as in 1F1B, so that gradients add up in the same order. One chunk,
/// whatever the shape says.
Schedule gpipe(const ScheduleShape& shape);

}  // namespace spillway
