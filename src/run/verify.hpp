#pragma once
// The run's own verification, before anything is timed: a tiny model on the run's ranks, layout and communicators.
#include <string>
#include <vector>

#include "run/session.hpp"
#include "run/watchdog.hpp"

namespace spillway {

/// Two iterations of a tiny shape, first plain and without a cap, compared with a serial reference in double precision;
/// then under every policy of the case with a cap and a spike that make it mitigate and, for static policies, run out of
/// memory and restart. Gradients must be equal bit for bit. Collective; returns what failed, the same on every rank.
std::vector<std::string> verify(const Case& c, const Session& session, Watchdog& watchdog);

}  // namespace spillway
