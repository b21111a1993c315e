#include "plan/reduction_order.hpp"

#include <algorithm>
#include <limits>

namespace spillway {

ReductionOrder::ReductionOrder(RankElements elements, const MachineProfile& machine)
    : elements_(std::move(elements)), machine_(machine) {
  int blocks = 0;
  for (const GroupElements& group : elements_)
    for (const Bucket& bucket : group.buckets) blocks = std::max(blocks, bucket.block + 1);
  is_final_.resize(static_cast<std::size_t>(blocks));
}

void ReductionOrder::begin_iteration() {
  queues_ = {};
  std::fill(is_final_.begin(), is_final_.end(), false);
}

void ReductionOrder::gradients_are_final(int block) {
  if (block >= std::ssize(is_final_)) return;
  is_final_[static_cast<std::size_t>(block)] = true;
  for (std::size_t g = 0; g < queues_.size(); ++g)
    if (elements_[g].overlapped) add(g, block);
}

void ReductionOrder::add(std::size_t group, int block) {
  if (elements_[group].shards == 1) return;
  for (const Bucket& bucket : elements_[group].buckets)
    if (bucket.block == block) queues_[group].waiting.push_back(bucket);
}

bool ReductionOrder::idle(std::size_t group) const {
  return queues_[group].next == queues_[group].waiting.size() && queues_[group].flying.empty();
}

void ReductionOrder::advance(std::size_t group, std::int64_t elements, std::vector<ReductionStep>& steps) {
  Queue& q = queues_[group];
  if (!q.flying.empty()) {
    steps.push_back(q.flying.front());
    steps.back().kind = ReductionStep::Kind::sum;
    q.flying.clear();
  }
  if (q.next == q.waiting.size() || elements <= 0) return;
  const Bucket& bucket = q.waiting[q.next];
  const std::int64_t n = std::min({elements, reduction_piece(elements_[group]), bucket.shard - q.at});
  q.flying.push_back({ReductionStep::Kind::exchange, static_cast<ParameterGroup>(group), bucket, q.at, n});
  steps.push_back(q.flying.front());
  q.at += n;
  if (q.at < bucket.shard) return;
  ++q.next;
  q.at = 0;
}

std::vector<ReductionStep> ReductionOrder::carry_on(Seconds seconds) {
  std::vector<ReductionStep> steps;
  for (std::size_t g = 0; g < queues_.size(); ++g) {
    if (idle(g)) continue;
    advance(g, elements_exchanged(elements_[g], machine_, seconds), steps);
    if (!queues_[g].flying.empty())
      seconds -= exchange_seconds(elements_[g], machine_, queues_[g].flying.front().elements);
  }
  return steps;
}

std::vector<ReductionStep> ReductionOrder::finish() {
  constexpr std::int64_t all = std::numeric_limits<std::int64_t>::max();
  std::vector<ReductionStep> steps;
  for (std::size_t g = 0; g < queues_.size(); ++g) {
    for (int block = static_cast<int>(is_final_.size()) - 1; block >= 0; --block)
      if (!elements_[g].overlapped || !is_final_[static_cast<std::size_t>(block)]) add(g, block);
    while (!elements_[g].overlapped && !idle(g)) advance(g, all, steps);
  }
  for (bool more = true; more;) {
    const std::size_t before = steps.size();
    for (std::size_t g = 0; g < queues_.size(); ++g) advance(g, all, steps);
    more = steps.size() > before;
  }
  return steps;
}

}  // namespace spillway
