#pragma once
// The routing of a case, and what is to be said of it.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/case.hpp"
#include "workload/routing/trace.hpp"

namespace spillway {

/// The case's routing: its recording, which the caller has read, or its preset. A model without experts never asks, but all
/// code takes a source.
std::unique_ptr<RoutingSource> case_routing(const Case& c, Trace recording);

/// Sum of the workload's hashes over all iterations, layers with experts and sequences: what compared runs must share.
/// Adds up only every `parts`-th sequence from `part` on; calls `touch` before each.
std::uint64_t workload_checksum(const Case& c, const RoutingSource& routing, std::int64_t part, std::int64_t parts,
                                const std::function<void()>& touch);

/// Co-activation of the first iteration's first micro-batch, mean over layers.
struct CoactivationFigures {
  std::optional<double> ochiai;          ///< empty without experts
  std::optional<double> distinct_nodes;  ///< that a token visits; empty where experts do not divide over the nodes
};
/// `node_of_rank`: by world rank. Calls `touch` before each sequence.
CoactivationFigures measure_coactivation(const Case& c, const RoutingSource& routing, std::span<const int> node_of_rank,
                                         const std::function<void()>& touch);

/// The iteration a timeline shows where none is named: the first in a burst, or else the first.
std::int64_t first_burst(const Case& c, const RoutingSource& routing);

/// What a reader of the results should know of the case.
std::vector<std::string> case_warnings(const Case& c, const RoutingSource& routing);

}  // namespace spillway
