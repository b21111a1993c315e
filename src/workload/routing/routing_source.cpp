#include "workload/routing/routing_source.hpp"

#include <vector>

#include "base/random.hpp"
#include "workload/routing/generator.hpp"
#include "workload/routing/purpose.hpp"
#include "workload/routing/trace.hpp"

namespace spillway {
namespace {

std::uint64_t hash_all(std::uint64_t hash, std::span<const std::int32_t> values) {
  for (const std::int32_t v : values) hash = mix(hash, v);
  return hash;
}

}  // namespace

std::unique_ptr<RoutingSource> make_routing_source(const RoutingOptions& options, const RoutingProblem& problem) {
  validate(options, problem);
  const Preset& preset = find_preset(options.preset);
  if (preset.recorded) return std::make_unique<TraceRouting>(read_trace(options.trace), options, problem);
  return std::make_unique<GeneratedRouting>(preset, options, problem);
}

std::uint64_t workload_hash(const RoutingSource& source, const RoutingProblem& problem, RoutingKey key) {
  std::uint64_t hash = mix(std::uint64_t{0}, Purpose::checksum, key.iteration, key.layer, key.sequence);
  std::vector<std::int32_t> rows(problem.num_experts);
  source.rows_per_expert(key, rows);
  hash = hash_all(hash, rows);
  if (key.sequence != 0) return hash;
  std::vector<std::int32_t> experts(problem.rows_per_sequence());
  source.choices(key, experts);
  return hash_all(hash, experts);
}

std::uint64_t workload_checksum(const RoutingSource& source, const RoutingProblem& problem, std::int64_t iterations) {
  std::uint64_t sum = 0;
  for (RoutingKey key; key.iteration < iterations; ++key.iteration) {
    for (key.layer = 0; key.layer < problem.num_layers; ++key.layer) {
      for (key.sequence = 0; key.sequence < problem.sequences_per_iteration; ++key.sequence) {
        sum += workload_hash(source, problem, key);
      }
    }
  }
  return sum;
}

}  // namespace spillway
