#pragma once
// How far topics must differ for calm iterations to have the asked imbalance.
#include "workload/routing/imbalance.hpp"
#include "workload/routing/topics.hpp"

namespace spillway {

/// The calm imbalance is estimated over iterations spread evenly over the first so many.
inline constexpr std::int64_t calibration_span = 10'000;

/// The spread at which the mean imbalance of calm iterations at the reference grouping is `calm`, by false position
/// on fixed sample iterations. A pure function of its arguments; under a second for 256 experts and 64 layers. Where whole
/// rows alone are less even than `calm`, it is the smallest spread. InputError where even topics with nothing in common
/// stay below `calm`.
double calibrate_spread(const TopicProfiles& profiles, const RoutingProblem& problem, const Grouping& grouping,
                        double calm);

}  // namespace spillway
