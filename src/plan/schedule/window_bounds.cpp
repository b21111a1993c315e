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

WindowRest WindowBounds::rest(const WindowPlace& place) const {
  const Remaining& f = remaining_[0][place[0]];
  const Remaining& b = remaining_[1][place[1]];
  const auto of_both = [](const OnLane& x, const OnLane& y) {
    return WindowRest::OnLane{x.work + y.work, {x.head, y.head}, std::min(x.tail, y.tail)};
  };
  return {of_both(f.compute, b.compute),
          of_both(f.network, b.network),
          {f.total, b.total},
          offload_sums_[offloads_ready_[place[0]]],
          offload_path_[place[0]]};
}

void WindowBounds::raise_lanes(const WindowRest& rest, PartialOrder& p) {
  const Seconds compute = rest.compute.needed(p), network = rest.network.needed(p);
  if (compute < never) p.compute.end = std::max(p.compute.end, compute);
  if (network < never) p.network = std::max(p.network, network);
}

/// Computation that begins as soon as a chain can take it and never pauses, with all seconds beside that are to come.
Seconds WindowBounds::compute_bound(const WindowRest& rest, const PartialOrder& p) const {
  const Seconds ready = rest.compute.needed(p), alone = rest.compute.work;
  const Seconds start = ready < never ? std::max(p.compute.end, ready) : p.compute.end;
  const Seconds beside = p.compute.beside + rest.network.work + offload_sums_[p.offloads] + reload_sums_[p.reloads];
  const Seconds settled = start + alone + std::max(Seconds(0), beside - start) * lost_;
  const Seconds tail = rest.compute.tail;
  return tail < never ? std::max(settled, start + alone + tail) : settled;
}

Seconds WindowBounds::least_makespan(const WindowRest& rest, const PartialOrder& p) const {
  const Seconds chains = std::max(p.ends[0] + rest.total[0], p.ends[1] + rest.total[1]);
  const Seconds ready = rest.network.needed(p);
  const Seconds network =
      ready < never ? std::max(p.network, ready) + rest.network.work + rest.network.tail : p.network;
  const Seconds copies = std::max({reload_sums_[0], p.copy_out + rest.offloads, p.ends[0] + rest.offload_path});
  return std::max(std::max(compute_bound(rest, p), chains), std::max(network, copies));
}

}  // namespace spillway
