#include "plan/schedule/barrier_slices.hpp"

#include <algorithm>
#include <limits>

namespace spillway {
namespace {

using Issued = std::array<std::size_t, chain_count>;
constexpr unsigned all_chains = (1u << chain_count) - 1;

/// Least makespans by segments issued of each chain.
class Slices {
 public:
  explicit Slices(const DualBatch& batch) : batch_(batch) {
    std::size_t states = 1;
    for (std::size_t c = chain_count; c-- > 0;) {
      stride_[c] = states;
      states *= batch.chains[c].size() + 1;
    }
    best_.assign(states, {Seconds(std::numeric_limits<double>::infinity()), 0});
  }

  BarrierInterleaving solve() {
    best_[0].seconds = Seconds(0);
    for (std::size_t state = 0; state < best_.size(); ++state)
      for (unsigned chains = 1; chains <= all_chains; ++chains) take(state, chains);
    return trace_back();
  }

 private:
  struct Best {
    Seconds seconds;
    unsigned chains;  ///< of the last slice, one bit each
  };

  Issued issued(std::size_t state) const {
    Issued n;
    for (std::size_t c = 0; c < chain_count; ++c) n[c] = state / stride_[c] % (batch_.chains[c].size() + 1);
    return n;
  }

  /// Lets the next segments of `chains` follow on `state` as one slice, if they may.
  void take(std::size_t state, unsigned chains) {
    const Issued n = issued(state);
    std::array<Segment, chain_count> slice;
    std::size_t size = 0, next = state;
    for (std::size_t c = 0; c < chain_count; ++c) {
      if ((chains >> c & 1) == 0) continue;
      if (n[c] == batch_.chains[c].size()) return;
      const Segment& s = slice[size++] = batch_.chains[c][n[c]];
      if (s.lane == Lane::copy_out && static_cast<std::size_t>(s.needs) > n[0]) return;
      next += stride_[c];
    }
    const Seconds seconds = best_[state].seconds + slice_seconds(batch_, {slice.data(), size});
    if (seconds < best_[next].seconds) best_[next] = {seconds, chains};
  }

  BarrierInterleaving trace_back() const {
    BarrierInterleaving result{{}, {}, best_.back().seconds};
    for (std::size_t state = best_.size() - 1; state > 0;) {
      const unsigned chains = best_[state].chains;
      const Issued n = issued(state);
      result.slice_ends.push_back(n[0] + n[1] + n[2] + n[3]);
      for (std::size_t c = chain_count; c-- > 0;) {
        if ((chains >> c & 1) == 0) continue;
        result.order.push_back(static_cast<ChainId>(c));
        state -= stride_[c];
      }
    }
    std::reverse(result.order.begin(), result.order.end());
    std::reverse(result.slice_ends.begin(), result.slice_ends.end());
    return result;
  }

  const DualBatch& batch_;
  Issued stride_{};
  std::vector<Best> best_;  ///< [forward][backward][offloads][reloads] issued
};

}  // namespace

Seconds slice_seconds(const DualBatch& batch, std::span<const Segment> slice) {
  std::array<Seconds, lane_count> lanes{};
  for (const Segment& s : slice) lanes[static_cast<std::size_t>(s.lane)] += s.seconds;
  const auto busy = std::count_if(lanes.begin(), lanes.end(), [](Seconds s) { return s > Seconds(0); });
  return *std::max_element(lanes.begin(), lanes.end()) * (busy > 1 ? batch.interference : 1.0);
}

BarrierInterleaving interleave_with_barriers(const DualBatch& batch) {
  validate(batch);
  return Slices(batch).solve();
}

}  // namespace spillway
