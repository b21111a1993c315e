#include "plan/live_count.hpp"

#include <algorithm>

#include "plan/schedule/interleaved.hpp"

namespace spillway {

int peak_live_pairs(const ScheduleShape& shape, int stage) {
  return std::min(shape.micro_batches * shape.chunks, warm_up_forwards(shape, stage) + 1);
}

double peak_live_micro_batches(const ScheduleShape& shape, int stage) {
  return static_cast<double>(peak_live_pairs(shape, stage)) / shape.chunks;
}

std::int64_t most_rows(const ExpertSpread& s, std::int64_t tokens_per_rank) {
  return s.ranks * std::min(s.chosen, s.experts / s.ranks) * tokens_per_rank;
}

double rank_load_bound(const ExpertSpread& s) {
  return static_cast<double>(most_rows(s, 1)) / static_cast<double>(s.chosen);
}

}  // namespace spillway
