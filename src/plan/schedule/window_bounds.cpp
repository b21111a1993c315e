#include "plan/schedule/window_bounds.hpp"

#include <algorithm>

namespace spillway {
namespace {

void sums_from(const std::vector<Segment>& chain, std::vector<Seconds>& sums) {
  sums.assign(chain.size() + 1, Seconds(0));
  for (std::size_t n = chain.size(); n-- > 0;) sums[n] = sums[n + 1] + chain[n].seconds;
}

}  // namespace

void WindowBounds::sum_up(const std::vector<Segment>& chain, std::vector<Remaining>& remaining) {
  remaining.assign(chain.size() + 1, {});
  for (std::size_t n = chain.size(); n-- > 0;) {
    const Segment& s = chain[n];
    Remaining& r = remaining[n] = remaining[n + 1];
    OnLane& same = s.lane == Lane::compute ? r.compute : r.network;
    OnLane& other = s.lane == Lane::compute ? r.network : r.compute;
    if (same.tail == never) same.tail = r.total;
    same.head = Seconds(0);
    same.work += s.seconds;
    other.head += s.seconds;
    r.total += s.seconds;
  }
}

void WindowBounds::prepare(const DualBatch& batch) {
  lost_ = 1 - 1 / batch.interference;
  sum_up(batch.of(ChainId::forward), remaining_[0]);
  sum_up(batch.of(ChainId::backward), remaining_[1]);
  const auto& offloads = batch.of(ChainId::offload);
  sums_from(offloads, offload_sums_);
  sums_from(batch.of(ChainId::reload), reload_sums_);

  const auto& forward = batch.of(ChainId::forward);
  offloads_ready_.assign(forward.size() + 1, 0);
  std::size_t ready = 0;
  for (std::size_t i = 0; i <= forward.size(); ++i) {
    while (ready < offloads.size() && static_cast<std::size_t>(offloads[ready].needs) <= i) ++ready;
    offloads_ready_[i] = ready;
  }
  offload_path_.assign(forward.size() + 1, Seconds(0));
  for (std::size_t i = forward.size(); i-- > 0 && offloads_ready_[i] < offloads.size();) {
    const bool next_readies = offloads_ready_[i + 1] > offloads_ready_[i];
    offload_path_[i] = forward[i].seconds +
                       std::max(offload_path_[i + 1], next_readies ? offload_sums_[offloads_ready_[i]] : Seconds(0));
  }
}

/// Computation that begins as soon as a chain can take it and never pauses, with all seconds beside that are to come.
Seconds WindowBounds::compute_bound(const PartialOrder& p, const Remaining& f, const Remaining& b) const {
  const Seconds ready = std::min(p.ends[0] + f.compute.head, p.ends[1] + b.compute.head);
  const Seconds start = ready < never ? std::max(p.compute.end, ready) : p.compute.end;
  const Seconds beside =
      p.compute.beside + f.network.work + b.network.work + offload_sums_[p.offloads] + reload_sums_[p.reloads];
  const Seconds alone = f.compute.work + b.compute.work;
  const Seconds settled = start + alone + std::max(Seconds(0), beside - start) * lost_;
  const Seconds tail = std::min(f.compute.tail, b.compute.tail);
  return tail < never ? std::max(settled, start + alone + tail) : settled;
}

Seconds WindowBounds::least_makespan(const WindowPlace& place, const PartialOrder& p) const {
  const Remaining& f = remaining_[0][place[0]];
  const Remaining& b = remaining_[1][place[1]];
  Seconds least = std::max(compute_bound(p, f, b), std::max(p.ends[0] + f.total, p.ends[1] + b.total));
  const Seconds ready = std::min(p.ends[0] + f.network.head, p.ends[1] + b.network.head);
  const Seconds network = ready < never ? std::max(p.network, ready) + f.network.work + b.network.work +
                                              std::min(f.network.tail, b.network.tail)
                                        : p.network;
  least = std::max({least, network, reload_sums_[0]});
  return std::max({least, p.copy_out + offload_sums_[offloads_ready_[place[0]]], p.ends[0] + offload_path_[place[0]]});
}

}  // namespace spillway
