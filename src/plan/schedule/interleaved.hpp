#pragma once
// Interleaved 1F1B: every stage holds several chunks of the model, so that the pipeline fills and drains in smaller steps
// at the price of more activations in flight (Megatron-LM's order, but with groups that cannot deadlock).
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace spillway {

/// Sizes of the groups of micro-batches that pass through one chunk before they enter the next: max(1, micro_batches /
/// stages) groups as equal as possible, the larger ones first. Megatron-LM takes groups of `stages` and a short remainder,
/// with which some shapes wait for ever (4 stages, 3 chunks, 5 micro-batches); where `stages` divides micro_batches, the
/// groups are its own.
std::vector<int> micro_batch_groups(const ScheduleShape& shape);

/// Forwards that `stage` runs before it alternates: stages - stage - 1 with one chunk, otherwise
/// 2 (stages - stage - 1) + (chunks - 1) x the largest group; never more than there are.
int warm_up_forwards(const ScheduleShape& shape, int stage);

/// An order of work: `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards.
/// Backwards take the forwards' order with the chunks reversed. With one chunk this is one_forward_one_backward.
std::vector<Task> order_with_warm_up(const ScheduleShape& shape, int warm_up);

/// The order of one stage: that with warm_up_forwards(shape, stage).
std::vector<Task> interleaved_order(const ScheduleShape& shape, int stage);

/// interleaved_order of every stage.
Schedule interleaved_one_forward_one_backward(const ScheduleShape& shape);

}  // namespace spillway
