#include "plan/cost/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

/// The machine with rates alone.
MachineProfile without_latency(MachineProfile m) {
  m.launch = m.node_latency = m.network_latency = Seconds(0);
  return m;
}

/// The machine with launches and latencies alone.
MachineProfile with_latency_alone(MachineProfile m) {
  m.peak_flops = m.memory_bandwidth = m.node_bandwidth = m.network_bandwidth = m.link_bandwidth =
      std::numeric_limits<double>::infinity();
  return m;
}

Seconds overhead(CostSituation s, const MachineProfile& machine, Tensor tensor, MitigationStrategy strategy) {
  s.machine = machine;
  return mitigation_cost(s, tensor, strategy)->total();
}

/// "offload up to 3.1 MiB, quantize": sizes up to which `mine` is the cheaper one; without a size: at every size.
std::string advantages(const CostSituation& s, Tensor tensor, MitigationStrategy mine) {
  const auto me = roofline(s, tensor, mine);
  std::string text;
  for (const MitigationStrategy other : all_strategies) {
    const auto them = roofline(s, tensor, other);
    if (other == mine || !them) continue;
    const auto size = crossover(*me, *them);
    const bool always = me->least() <= them->least() && me->bandwidth >= them->bandwidth;
    if (!size && !always) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name(other));
    if (size) text += fmt::format(" up to {:.4g} MiB", mebibytes(*size));
  }
  return text;
}

}  // namespace

Seconds MitigationRoofline::seconds(Bytes freed) const {
  return Seconds(static_cast<double>(std::max(freed, knee).value) / bandwidth);
}

std::optional<MitigationRoofline> roofline(const CostSituation& s, Tensor tensor, MitigationStrategy strategy) {
  const auto cost = mitigation_cost(s, tensor, strategy);
  if (!cost || cost->freed.value == 0) return std::nullopt;
  const Seconds above = overhead(s, without_latency(s.machine), tensor, strategy);
  const Seconds least = overhead(s, with_latency_alone(s.machine), tensor, strategy);
  const double bandwidth = static_cast<double>(cost->freed.value) / above.value;
  return MitigationRoofline{Bytes(std::llround(least.value * bandwidth)), bandwidth};
}

std::optional<Bytes> crossover(const MitigationRoofline& i, const MitigationRoofline& j) {
  if (i.least() >= j.least() || i.bandwidth >= j.bandwidth) return std::nullopt;
  return Bytes(static_cast<std::int64_t>(std::floor(static_cast<double>(j.knee.value) * i.bandwidth / j.bandwidth)));
}

std::string roofline_table(const CostSituation& s) {
  std::string text = fmt::format("{:<22} {:<10} {:>10} {:>10} {:>9} {:>11}  {}\n", "tensor", "strategy", "freed MiB",
                                 "knee MiB", "GB/s", "overhead ms", "cheaper than");
  for (const Tensor tensor : saved_tensors(s.kind, s.context))
    for (const MitigationStrategy strategy : all_strategies) {
      const auto line = roofline(s, tensor, strategy);
      if (!line) continue;
      const MitigationCost cost = *mitigation_cost(s, tensor, strategy);
      text += fmt::format("{:<22} {:<10} {:>10.3f} {:>10.3f} {:>9.1f} {:>11.4f}  {}\n", name(tensor), name(strategy),
                          mebibytes(cost.freed), mebibytes(line->knee), line->bandwidth * 1e-9,
                          1e3 * cost.total().value, advantages(s, tensor, strategy));
    }
  return text;
}

}  // namespace spillway
