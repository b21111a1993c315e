#pragma once
// How many forward passes a pipeline stage holds at once, in closed form, and how much load one rank can meet.
#include <cstdint>

#include "plan/schedule/schedule.hpp"

namespace spillway {

/// Most (micro-batch, chunk) pairs of a stage that are forward done, backward not, under interleaved 1F1B:
/// min(micro_batches x chunks, warm-up forwards + 1). What peak_live counts in the order itself.
int peak_live_pairs(const ScheduleShape& shape, int stage);

/// The same in whole micro-batches of the stage: pairs / chunks. 5.5 on stage 0 of 4 stages of 2 chunks.
double peak_live_micro_batches(const ScheduleShape& shape, int stage);

/// Where tokens choose distinct experts: see rank_load_bound.
struct ExpertSpread {
  std::int64_t experts = 1;  ///< E, a multiple of ranks
  std::int64_t chosen = 1;   ///< k experts of a token
  std::int64_t ranks = 1;    ///< EP, of an expert group
  bool operator==(const ExpertSpread&) const = default;
};

/// Most rows that a rank can receive, as a multiple of balance: EP x min(k, E / EP) / k. All tokens of the group send the
/// rank as many rows as it holds experts, but never more than k.
double rank_load_bound(const ExpertSpread& spread);

/// The same in rows, exactly: EP x min(k, E / EP) x the tokens of one rank.
std::int64_t most_rows(const ExpertSpread& spread, std::int64_t tokens_per_rank);

}  // namespace spillway
