#pragma once
// Computation that copies and messages slow down: one rule for the virtual clock and for the plans that foresee it.
#include <algorithm>

#include "base/units.hpp"

namespace spillway {

/// The compute lane, told of computations, copies and messages in the order of issue.
///
/// Rule: a second of a copy or message is a second beside which computation takes `factor` (>= 1) times as long. Seconds
/// beside add up over the other lanes and queue behind the last computation; the computations issued next meet them
/// first, and time in which the lane idles uses them up too. So a transfer slows computation wherever the two overlap,
/// whichever was issued first: one issued over a computation whose end is known already slows the next one, or, where
/// none follows, moves the lane's end (settled()). A second of transfer is charged at most once.
///
/// Where the lane computes without a pause this is exact in time, otherwise an estimate. Every end grows with every
/// start, duration and earlier end, and scales with them, so that of two partial orders the one whose lanes end earlier
/// stays ahead.
struct ComputeLane {
  Seconds end;     ///< of the last computation
  Seconds beside;  ///< until when computation is slow, if the lane does not idle; never below `end`

  /// Issues a computation of `alone` seconds whose inputs are ready at `ready`. Returns its end.
  Seconds compute(Seconds ready, Seconds alone, double factor) {
    const Seconds start = std::max(end, ready);
    const Seconds slow = std::max(Seconds(0), beside - start);
    end = start + alone + std::min(alone * (factor - 1), slow * (1 - 1 / factor));
    beside = std::max(beside, end);
    return end;
  }
  /// Issues a copy or a message that occupies another lane for `seconds`, whenever it starts.
  void transfer(Seconds seconds) { beside += seconds; }
  /// End of the lane when what is left beside runs beside computations issued before.
  Seconds settled(double factor) const { return end + (beside - end) * (1 - 1 / factor); }
};

}  // namespace spillway
