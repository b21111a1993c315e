#pragma once
// Which experts the tokens of a sequence go to: a function of (seed, iteration, layer, global sequence index) only.
#include <cstdint>
#include <memory>
#include <span>

#include "workload/routing/options.hpp"

namespace spillway {

/// What routing needs to know of the case besides its own options. None of it is layout.
struct RoutingProblem {
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t num_layers = 0;               ///< all layers, global numbering (dense ones are never asked for)
  std::int64_t sequence_length = 0;          ///< tokens of a sequence, s
  std::int64_t sequences_per_iteration = 0;  ///< of the whole job: the global batch

  /// Rows of one sequence in one layer, s * k.
  std::int64_t rows_per_sequence() const { return sequence_length * num_experts_per_tok; }
  bool operator==(const RoutingProblem&) const = default;
};

/// Addresses the routing of one sequence in one layer. `sequence` counts over the data of the iteration, micro-batch
/// major: (micro_batch * data_parallel + data rank) * micro_batch_size + position.
struct RoutingKey {
  std::int64_t iteration = 0, layer = 0, sequence = 0;
};

/// Immutable once built, so any number of threads may ask at once.
class RoutingSource {
 public:
  virtual ~RoutingSource() = default;
  /// Rows of the sequence per expert [num_experts]; they sum to s * k, none exceeds s.
  virtual void rows_per_expert(RoutingKey key, std::span<std::int32_t> rows) const = 0;
  /// Experts of every token [s, k]; k distinct experts per token, column sums equal rows_per_expert.
  virtual void choices(RoutingKey key, std::span<std::int32_t> experts) const = 0;
  /// True when the iteration has hot sequences (a burst, or any iteration of a preset that is always hot).
  virtual bool in_burst(std::int64_t iteration) const = 0;
};

/// Refuses options that are no numbers, out of range, contradict each other or ask for more than k distinct experts
/// per token allow; InputError with the arithmetic and a remedy. Reads no file.
void validate(const RoutingOptions& options, const RoutingProblem& problem);

/// Builds the source the options ask for (preset trace reads its file). Throws InputError as validate does, and where
/// `calm` is beyond what topics can reach at this shape.
std::unique_ptr<RoutingSource> make_routing_source(const RoutingOptions& options, const RoutingProblem& problem);

/// Hash of one sequence in one layer: the key, its rows per expert and, for sequence 0, its tokens' choices.
std::uint64_t workload_hash(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key);

/// Order-independent checksum of the workload: the sum (modulo 2^64) of workload_hash over iterations, layers and
/// sequences, so ranks may sum any partition of it.
std::uint64_t workload_checksum(const RoutingSource& source, const RoutingProblem& problem, std::int64_t iterations);

}  // namespace spillway
