#pragma once
// Mitigation bandwidth, bytes freed per second of overhead, against size: launches and latencies bound it below a knee,
// rates above (BaGuaLu-2, arXiv 2610.23064).
#include <optional>
#include <string>

#include "plan/cost/operator_cost.hpp"

namespace spillway {

/// t(x) = max(x, knee) / bandwidth for x bytes freed.
struct MitigationRoofline {
  Bytes knee;            ///< below it the time no longer falls
  double bandwidth = 0;  ///< bytes freed per second of overhead, above the knee

  Seconds seconds(Bytes freed) const;
  /// Time that the smallest tensor takes.
  Seconds least() const { return seconds(Bytes(0)); }
};

/// Roofline of a strategy for a saved tensor at the proportions of this situation (rows to tokens, sequence length, all
/// of the overhead exposed). Empty where the strategy does not exist or frees nothing.
std::optional<MitigationRoofline> roofline(const CostSituation& situation, Tensor tensor, MitigationStrategy strategy);

/// The largest size at which i costs no more than j: where i's time, x / B_i, reaches j's least time S_j / B_j, so
/// x = S_j B_i / B_j. (The paper prints it with the indices exchanged, which cannot lie between the knees.) Empty
/// unless i starts cheaper, S_j / B_j > S_i / B_i, and j has the higher bandwidth: elsewhere one of them always wins.
std::optional<Bytes> crossover(const MitigationRoofline& i, const MitigationRoofline& j);

/// A line per saved tensor and strategy: bytes freed, knee, bandwidth, overhead, and the sizes up to which it is
/// cheaper than the others (no size: always).
std::string roofline_table(const CostSituation& situation);

}  // namespace spillway
