#include "plan/reduction_places.hpp"

#include <algorithm>
#include <cmath>

#include "plan/cost/time_model.hpp"

namespace spillway {

ReductionPlaces reduction_places(const StageBlock& block, const MachineProfile& machine) {
  const BlockContext& c = block.context;
  const ExpertRows rows{c.local_experts() > 0 ? c.routed_rows() : 0, c.local_experts(), {}};
  ReductionPlaces places;
  Seconds* counted = block.kind == BlockKind::moe ? nullptr : &places.first;
  const auto table = operator_table(block.kind, c);
  for (auto row = table.rbegin(); row != table.rend(); ++row) {
    if (row->backward.reads.empty() && row->backward.writes.empty()) continue;
    const OperatorWork work = operator_work(row->op, PassKind::backward, c, rows, true);
    const Seconds before = compute_seconds(machine, work.flops, work.bytes);
    const Seconds after = compute_seconds(machine, Flops(0), work.bytes_after_message);
    if (counted != nullptr && work.gathered.value == 0) *counted += before;
    if (row->collective == Collective::tensor_parallel) counted = nullptr;
    if (row->op == Op::combine) counted = &places.first;
    if (row->op == Op::dispatch) counted = &places.second;
    if (counted != nullptr) *counted += after;
  }
  return places;
}

Seconds exchange_seconds(const GroupElements& group, const MachineProfile& machine, std::int64_t elements) {
  std::vector<int> nodes;
  for (std::int64_t i = 0; i < group.shards; ++i)
    nodes.push_back(node_of(machine, static_cast<int>(i) * group.distance));
  return all_to_all_seconds(machine, std::vector<Bytes>(nodes.size(), Bytes(group.shards * elements * 4)), nodes);
}

std::int64_t elements_exchanged(const GroupElements& group, const MachineProfile& machine, Seconds seconds) {
  constexpr std::int64_t many = std::int64_t{1} << 20;
  const Seconds latency = exchange_seconds(group, machine, 0), all = exchange_seconds(group, machine, many) - latency;
  if (seconds <= latency || all.value <= 0) return 0;
  return static_cast<std::int64_t>(std::floor((seconds - latency) / all * static_cast<double>(many)));
}

}  // namespace spillway
