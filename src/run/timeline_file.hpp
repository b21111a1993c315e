#pragma once
// One file from the timelines of all ranks.
#include <filesystem>

#include "metrics/timeline.hpp"
#include "run/session.hpp"
#include "run/timeline_recorder.hpp"

namespace spillway {

/// Collective over the world: rank 0 writes what all have recorded, rank after rank, and holds no more than a piece of
/// one. The file appears whole or not at all; EnvironmentError on rank 0, once nobody waits for it any more.
void write_timeline(const std::filesystem::path& file, const TimelineHeader& header, const RankTimeline& mine,
                    const Session& session);

/// Collective over the world, after an iteration. Ranks of a node share a clock; nodes are taken to leave the barrier
/// together. Zero on the virtual clock, where all begin at once.
ClockSkew clock_skew(const device::Clock& clock);

}  // namespace spillway
