#include "plan/cost/time_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spillway {

void validate(const MachineProfile& m) {
  const auto rate = [](const char* name, double value) {
    require_input(std::isfinite(value) && value > 0, "machine.{} = {}: must be a finite rate above 0", name, value);
  };
  const auto time = [](const char* name, Seconds value) {
    require_input(std::isfinite(value.value) && value.value >= 0, "machine.{} = {} s: must be finite and not negative",
                  name, value.value);
  };
  rate("peak_flops", m.peak_flops);
  rate("gemm_efficiency", m.gemm_efficiency);
  require_input(m.gemm_efficiency <= 1, "machine.gemm_efficiency = {}: a share of the peak, at most 1",
                m.gemm_efficiency);
  rate("memory_bandwidth", m.memory_bandwidth);
  rate("node_bandwidth", m.node_bandwidth);
  rate("network_bandwidth", m.network_bandwidth);
  rate("link_bandwidth", m.link_bandwidth);
  time("launch", m.launch);
  time("node_latency", m.node_latency);
  time("network_latency", m.network_latency);
  time("restart_seconds", m.restart_seconds);
  require_input(std::isfinite(m.interference) && m.interference >= 1,
                "machine.interference = {}: a slow-down factor, at least 1", m.interference);
  require_input(m.ranks_per_node >= 1, "machine.ranks_per_node = {}: must be at least 1", m.ranks_per_node);
}

Seconds compute_seconds(const MachineProfile& m, Flops flops, Bytes bytes) {
  if (flops.value == 0 && bytes.value == 0) return Seconds(0);
  const double products = static_cast<double>(flops.value) / (m.peak_flops * m.gemm_efficiency);
  const double passes = static_cast<double>(bytes.value) / m.memory_bandwidth;
  return Seconds(std::max({products, passes, m.launch.value}));
}

Seconds all_to_all_seconds(const MachineProfile& m, std::span<const Bytes> received, std::span<const int> nodes) {
  const auto members = static_cast<double>(received.size());
  double slowest = 0;
  bool crosses = false;
  for (std::size_t i = 0; i < received.size(); ++i) {
    const auto on_my_node = static_cast<double>(std::count(nodes.begin(), nodes.end(), nodes[i]));
    const double from_each = static_cast<double>(received[i].value) / members;
    const double inside = from_each * (on_my_node - 1) / m.node_bandwidth;
    const double across = from_each * (members - on_my_node) / m.network_bandwidth;
    slowest = std::max({slowest, inside, across});
    crosses = crosses || on_my_node < members;
  }
  if (received.size() <= 1) return Seconds(0);
  return Seconds(slowest) + (crosses ? m.network_latency : m.node_latency);
}

MessageSeconds message_seconds(const MachineProfile& m, Bytes bytes, bool same_node) {
  const double rate = same_node ? m.node_bandwidth : m.network_bandwidth;
  return {Seconds(static_cast<double>(bytes.value) / rate), same_node ? m.node_latency : m.network_latency};
}

Seconds copy_seconds(const MachineProfile& m, Bytes bytes) {
  if (bytes.value == 0) return Seconds(0);
  return std::max(m.launch, Seconds(static_cast<double>(bytes.value) / m.link_bandwidth));
}

}  // namespace spillway
