#include "plan/load_bound.hpp"

#include <algorithm>

namespace spillway {

std::int64_t most_rows(const ExpertSpread& s, std::int64_t tokens_per_rank) {
  return s.ranks * std::min(s.chosen, s.experts / s.ranks) * tokens_per_rank;
}

double rank_load_bound(const ExpertSpread& s) {
  return static_cast<double>(most_rows(s, 1)) / static_cast<double>(s.chosen);
}

}  // namespace spillway
