#pragma once
// Faults that tests put into a run to see its own verification catch them. No option or environment variable of the
// program sets one; only the test program does.
#include <string_view>

namespace spillway::device {

enum class Fault : unsigned char {
  none,
  dropped_token,        ///< a row is lost in dispatch: zeros arrive
  swapped_experts,      ///< two local experts compute each other's rows
  skipped_recompute,    ///< a tensor that should be computed again keeps whatever its memory held
  stale_buffer,         ///< backward reads another micro-batch's saved tensor
  missing_reduction,    ///< gradients are not summed over the ranks that share a parameter
  wrong_residual,       ///< the residual is left out of the attention half
  wrong_router_weight,  ///< rows are weighted with their neighbour's probability
  lost_snapshot,        ///< a restart does not bring the weights back
  skipped_gradient,     ///< a block's weight gradient is not accumulated
  disagreeing_plans,    ///< the last rank orders its messages for a network without cost
  late_loss,            ///< rank 0 loses the next iteration whose first gradients have just become final; once
  extra_product         ///< a product is executed twice (agreement of clocks must notice)
};

inline Fault injected_fault = Fault::none;

inline bool injected(Fault fault) { return injected_fault == fault; }

/// Throws InputError for an unknown name.
Fault parse_fault(std::string_view name);

/// Moments of a run at which a test ends a rank: those up to `measurement` and `report` come once, the others often.
enum class Phase : unsigned char {
  start,
  verification,
  measurement,
  gate,
  forward,
  backward,
  reduction,
  restart,
  report
};

/// What the test program does at each phase; the program itself leaves it null.
inline void (*on_phase)(Phase) = nullptr;

inline void reach(Phase phase) {
  if (on_phase != nullptr) on_phase(phase);
}

/// Throws InputError for an unknown name.
Phase parse_phase(std::string_view name);

}  // namespace spillway::device
