#include "plan/schedule/dual_batch.hpp"

#include <algorithm>
#include <cmath>

#include "base/compute_lane.hpp"
#include "base/error.hpp"

namespace spillway {
namespace {

constexpr std::array<char, chain_count> letter{'F', 'B', 'O', 'R'};

bool may_use(std::size_t chain, Lane lane) {
  if (chain == static_cast<std::size_t>(ChainId::offload)) return lane == Lane::copy_out;
  if (chain == static_cast<std::size_t>(ChainId::reload)) return lane == Lane::copy_in;
  return lane == Lane::compute || lane == Lane::network;
}

/// Issues segments one after another.
class Issue {
 public:
  explicit Issue(const DualBatch& batch) : batch_(batch) {
    forward_ends_.reserve(batch.of(ChainId::forward).size() + 1);
  }

  IssuedWork::Item next(ChainId chain) {
    const auto c = static_cast<std::size_t>(chain);
    const Segment& s = batch_.chains[c][issued_[c]];
    Seconds& lane = lanes_[static_cast<std::size_t>(s.lane)];
    Seconds start = std::max(lane, ends_[c]);
    if (chain == ChainId::offload) start = std::max(start, forward_ends_[static_cast<std::size_t>(s.needs)]);
    if (s.lane == Lane::compute) {
      lane = compute_.compute(start, s.seconds, batch_.interference);
    } else {
      lane = start + s.seconds;
      compute_.transfer(s.seconds);
    }
    ends_[c] = lane;
    if (chain == ChainId::forward) forward_ends_.push_back(lane);
    return {chain, static_cast<int>(issued_[c]++), start, lane};
  }
  Seconds makespan() const {
    return std::max(compute_.settled(batch_.interference), *std::max_element(lanes_.begin(), lanes_.end()));
  }
  bool can_issue(ChainId chain) const {
    const auto c = static_cast<std::size_t>(chain);
    if (issued_[c] == batch_.chains[c].size()) return false;
    return chain != ChainId::offload ||
           static_cast<std::size_t>(batch_.chains[c][issued_[c]].needs) < forward_ends_.size();
  }

 private:
  const DualBatch& batch_;
  std::array<std::size_t, chain_count> issued_{};
  std::array<Seconds, chain_count> ends_{};
  std::array<Seconds, lane_count> lanes_{};
  ComputeLane compute_;
  std::vector<Seconds> forward_ends_{Seconds(0)};  ///< [segments issued]
};

}  // namespace

void validate(const DualBatch& batch) {
  ensure(std::isfinite(batch.interference) && batch.interference >= 1, "interference = {}: a slow-down, at least 1",
         batch.interference);
  const auto forward = batch.of(ChainId::forward).size();
  for (std::size_t c = 0; c < chain_count; ++c)
    for (const Segment& s : batch.chains[c]) {
      ensure(may_use(c, s.lane), "chain {} has a segment on lane {}", letter[c], static_cast<int>(s.lane));
      ensure(std::isfinite(s.seconds.value) && s.seconds.value >= 0, "chain {} has a segment of {} s", letter[c],
             s.seconds.value);
      ensure(s.needs >= 0 && static_cast<std::size_t>(s.needs) <= forward,
             "a segment of chain {} needs {} forward segments of {}", letter[c], s.needs, forward);
    }
}

IssuedWork issue(const DualBatch& batch, std::span<const ChainId> order) {
  std::size_t segments = 0;
  for (const auto& chain : batch.chains) segments += chain.size();
  ensure(order.size() == segments, "an order of {} segments for a window of {}", order.size(), segments);
  Issue issue(batch);
  IssuedWork work;
  for (const ChainId c : order) {
    if (!issue.can_issue(c))
      throw InternalError(fmt::format("{}: the chain at position {} has no segment that may be issued", to_text(order),
                                      work.items.size()));
    work.items.push_back(issue.next(c));
  }
  work.makespan = issue.makespan();
  return work;
}

Seconds makespan(const DualBatch& batch, std::span<const ChainId> order) {
  Issue issue(batch);
  for (const ChainId c : order) issue.next(c);
  return issue.makespan();
}

IssueOrder plain_order(const DualBatch& batch) {
  IssueOrder order(batch.of(ChainId::reload).size(), ChainId::reload);
  const auto& offloads = batch.of(ChainId::offload);
  std::size_t o = 0;
  const auto offload_ready = [&](std::size_t forward) {
    for (; o < offloads.size() && static_cast<std::size_t>(offloads[o].needs) <= forward; ++o)
      order.push_back(ChainId::offload);
  };
  offload_ready(0);
  for (std::size_t f = 1; f <= batch.of(ChainId::forward).size(); ++f) {
    order.push_back(ChainId::forward);
    offload_ready(f);
  }
  order.insert(order.end(), batch.of(ChainId::backward).size(), ChainId::backward);
  return order;
}

std::string to_text(std::span<const ChainId> order) {
  std::string text;
  for (const ChainId c : order) {
    if (!text.empty()) text += ' ';
    text += letter[static_cast<std::size_t>(c)];
  }
  return text;
}

}  // namespace spillway
