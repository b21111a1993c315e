#pragma once
// The end of an iteration: gradients summed in rank order over the ranks that share them, Adam on each rank's shard, new
// values gathered.
#include "run/engine.hpp"
#include "run/lane_timer.hpp"

namespace spillway {

/// The ranks that share a group's parameters, each its shard of the optimizer state.
const device::Group& sharers(const Engine& engine, ParameterGroup group);

/// False when the receive buffer of a reduction exceeds the cap. Collective over the gradient groups; on an
/// out-of-memory rank the others must not enter, so ask `gradient_buffers_fit` everywhere first.
bool gradient_buffers_fit(Engine& engine);

/// Sets every gradient to zero.
void clear_gradients(Engine& engine, LaneTimer& timer);

/// Sums gradients into each rank's shard.
void reduce_gradients(Engine& engine, LaneTimer& timer);

/// Adam on the shard, then all-gather of the values. `step` counts from 1.
void apply_optimizer(Engine& engine, LaneTimer& timer, const TrainingOptions& training, std::int64_t step);

/// This rank's share of the job's gradient checksum: over its shards, after the reduction. Shares add up modulo 2^64.
std::uint64_t gradient_checksum(Engine& engine);
bool gradients_finite(Engine& engine);

}  // namespace spillway
