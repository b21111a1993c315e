#pragma once
// A machine as a few physical constants (inputs/machines/NAME.toml gives the source of each).
#include <string>

#include "base/units.hpp"

namespace spillway {

struct MachineProfile {
  std::string name = "mini";
  double peak_flops = 1e12;        ///< FLOP/s of one rank's device, dense, at the case's element type
  double gemm_efficiency = 0.8;    ///< share of peak that matrix products reach
  double memory_bandwidth = 1e11;  ///< bytes/s of device memory
  Seconds launch{5e-6};            ///< least time of an operator
  double node_bandwidth = 1e10;    ///< bytes/s of one rank to ranks of its node
  double network_bandwidth = 2e9;  ///< bytes/s of one rank to other nodes
  Seconds node_latency{2e-6};      ///< of a message inside a node
  Seconds network_latency{5e-6};   ///< of a message between nodes
  double link_bandwidth = 1e10;    ///< bytes/s between device and host, each way
  int ranks_per_node = 8;
  double interference = 1.0;      ///< slow-down of computation beside copies and messages (base/compute_lane.hpp)
  Seconds restart_seconds{10.0};  ///< cold start charged for one restart on the virtual clock
  bool shared_memory = false;     ///< host and device memory are one (offloading frees nothing)
  bool operator==(const MachineProfile&) const = default;
};

/// Refuses rates that are not finite and positive, negative times and ranks_per_node below 1.
void validate(const MachineProfile& machine);

}  // namespace spillway
