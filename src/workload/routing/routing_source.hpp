#pragma once
// Which experts the tokens of a sequence go to: a function of (seed, iteration, layer, global sequence index) only.
#include <cstdint>
#include <memory>
#include <span>

#include "workload/routing/options.hpp"
#include "workload/shape/model_shape.hpp"

namespace spillway {

/// What routing needs to know of the case besides its own options. None of it is layout.
struct RoutingProblem {
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t num_layers = 0;             ///< all layers, global numbering (dense ones are never asked for)
  std::int64_t sequence_length = 0;        ///< tokens of a sequence, s
  std::int64_t sequences_per_micro_batch = 0;  ///< of one expert group at the reference layout (calibrates the peak)
  std::int64_t sequences_per_iteration = 0;    ///< of the whole job
};

/// Addresses the routing of one sequence in one layer. `sequence` counts over the data of the iteration, micro-batch major.
struct RoutingKey {
  std::int64_t iteration = 0, layer = 0, sequence = 0;
};

class RoutingSource {
 public:
  virtual ~RoutingSource() = default;
  /// Rows of the sequence per expert [num_experts]; they sum to s * k, none exceeds s.
  virtual void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const = 0;
  /// Experts of every token [s, k]; k distinct experts per token, column sums equal rows_per_expert.
  virtual void choices(RoutingKey key, std::span<std::int32_t> experts) const = 0;
  /// True inside a burst.
  virtual bool in_burst(std::int64_t iteration) const = 0;
};

/// Builds the source the options ask for. Throws InputError with the arithmetic where a request cannot be met.
std::unique_ptr<RoutingSource> make_routing_source(const RoutingOptions& options, const RoutingProblem& problem);

/// Order-independent checksum of the workload: sum over layers and sequences of a hash of (key, rows per expert).
std::uint64_t workload_checksum(const RoutingSource& source, const RoutingProblem& problem, std::int64_t iterations);

}  // namespace spillway
