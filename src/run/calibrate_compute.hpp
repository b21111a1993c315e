#pragma once
// What one rank's share of a machine reaches while all ranks work: products, attention, passes over memory, copies.
#include <string>
#include <vector>

#include "run/calibrate_statistics.hpp"
#include "run/calibrate_together.hpp"

namespace spillway {

/// Experts of one rank as a run multiplies them: `count` experts of `rows` rows each.
struct ExpertShape {
  std::int64_t hidden, expert_hidden, count, rows;
};

/// How much is measured; both sets take the shapes of a run.
struct CalibrateScale {
  int repetitions;
  std::int64_t square;               ///< rows and columns of the big product
  std::vector<ExpertShape> experts;  ///< and the projections beside them
  std::vector<Bytes> passes;         ///< sizes of one operand of a pass, of a copy
  Bytes memory;                      ///< passes walk through so much, more than caches hold
  std::vector<Bytes> messages;       ///< bytes that a rank receives in an all-to-all
  static CalibrateScale full();
  static CalibrateScale quick();
};

/// FLOP/s, each over all ranks and repetitions.
struct ProductRates {
  SampleSummary square;
  std::vector<SampleSummary> shapes;  ///< products of experts and projections: forward, input and weight gradients
  SampleSummary attention;            ///< FLOPs as the operator charges them
  double best() const;                ///< of all products
};
ProductRates measure_products(const Together& together, const CalibrateScale& scale);

/// Bytes/s. Passes count what the operators charge: every argument once.
struct MemoryRates {
  std::vector<SampleSummary> triads, norms,
      activations;                    ///< by size; activations: SwiGLU, which a core's exponentials slow
  std::vector<SampleSummary> copies;  ///< memcpy, bytes that arrive
  /// Bytes over seconds of a triad, a norm and a SwiGLU of equal bytes, each at its median over sizes.
  double passes() const;
  /// The largest over kinds of pass and sizes.
  double worst_spread() const;
};
MemoryRates measure_memory(const Together& together, const CalibrateScale& scale);

/// Seconds of a kernel that does next to nothing, a mean over many launches each.
SampleSummary measure_launch(const Together& together);

/// Time of a product beside a thread of the same rank that copies memory, over its time alone.
SampleSummary measure_interference(const Together& together, const CalibrateScale& scale);

}  // namespace spillway
