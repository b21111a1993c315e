#pragma once
// Random windows of fused dual-batch execution, for tests and benchmarks.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.hpp"
#include "plan/schedule/dual_batch.hpp"

namespace spillway {

/// Draws one value after another.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed, 0xd0a1) {}
  double between(double low, double high) { return low + (high - low) * random_.uniform(at_++); }
  double log_between(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }
  int up_to(int most) { return static_cast<int>(random_.below(at_++, static_cast<std::uint64_t>(most) + 1)); }

 private:
  CounterRandom random_;
  std::uint64_t at_ = 0;
};

/// counts[0] offloads and counts[1] reloads, of seconds[0] to seconds[1] each; offloads need any part of the forward chain.
inline void add_copies(DualBatch& w, Draws& draw, std::array<int, 2> counts, std::array<double, 2> seconds) {
  std::vector<int> needs;
  for (int n = 0; n < counts[0]; ++n) needs.push_back(draw.up_to(static_cast<int>(w.of(ChainId::forward).size())));
  std::sort(needs.begin(), needs.end());
  for (const int need : needs)
    w.of(ChainId::offload).push_back({Lane::copy_out, Seconds(draw.between(seconds[0], seconds[1])), need});
  for (int n = 0; n < counts[1]; ++n)
    w.of(ChainId::reload).push_back({Lane::copy_in, Seconds(draw.between(seconds[0], seconds[1]))});
}

/// Chains of up to 4, 4, 2 and 2 segments, 10 in all at most, on any lane they may have; some durations are zero.
inline DualBatch small_window(std::uint64_t seed) {
  Draws draw(seed);
  DualBatch w;
  w.interference = seed % 3 == 0 ? 1 : draw.between(1, 2);
  const double ratio = draw.log_between(0.2, 3);
  for (const ChainId c : {ChainId::forward, ChainId::backward})
    for (int n = draw.up_to(4); n > 0; --n) {
      const bool message = draw.up_to(1) == 1;
      const double seconds = draw.up_to(9) == 0 ? 0 : draw.between(0.2, 1.5) * (message ? ratio : 1);
      w.of(c).push_back({message ? Lane::network : Lane::compute, Seconds(seconds)});
    }
  const int room = 10 - static_cast<int>(w.chains[0].size() + w.chains[1].size());
  add_copies(w, draw, {draw.up_to(std::min(room - 1, 2)), draw.up_to(std::min(room - 2, 2))}, {0.1, 1.5});
  return w;
}

/// As a MoE block's window is after compaction: 6 forward and 6 backward segments, two of each messages, 2 copies each way.
inline DualBatch compacted_window(std::uint64_t seed, double interference) {
  Draws draw(seed);
  DualBatch w;
  w.interference = interference;
  const double ratio = draw.log_between(0.2, 3), copies = draw.log_between(0.1, 1.5);
  const auto add = [&](ChainId c, Lane lane, double low, double high) {
    w.of(c).push_back({lane, Seconds(draw.between(low, high))});
  };
  for (const Lane lane : {Lane::compute, Lane::compute, Lane::network, Lane::compute, Lane::network, Lane::compute})
    add(ChainId::forward, lane, lane == Lane::compute ? 0.2 : ratio * 0.5, lane == Lane::compute ? 1.5 : ratio * 1.5);
  for (const Lane lane : {Lane::compute, Lane::network, Lane::compute, Lane::network, Lane::compute, Lane::compute})
    add(ChainId::backward, lane, lane == Lane::compute ? 0.4 : ratio * 0.5, lane == Lane::compute ? 3 : ratio * 1.5);
  add_copies(w, draw, {2, 2}, {copies * 0.5, copies * 1.5});
  return w;
}

/// The operators of `blocks` MoE blocks: forward norm, qkv, attention, out projection, norm, router | dispatch | fc1,
/// swiglu, fc2 | combine | unpermute, backward the mirror with twice the computation, 0 to 3 copies each way. All
/// messages take 0.2 to 3 times as long as all computation; loads differ by pass and block.
inline DualBatch moe_window(std::uint64_t seed, int blocks, double interference) {
  Draws draw(seed);
  DualBatch w;
  w.interference = interference;
  const double norm = draw.log_between(.005, .05), qkv = draw.log_between(.05, .3),
               attention = draw.log_between(.02, .5), out = draw.log_between(.03, .2),
               router = draw.log_between(.003, .05), fc1 = draw.log_between(.2, .8), swiglu = draw.log_between(.01, .1),
               fc2 = fc1 * draw.between(.45, .55), unpermute = draw.log_between(.005, .08),
               ratio = draw.log_between(.2, 3);
  const double forward = 2 * norm + qkv + attention + out + router + fc1 + swiglu + fc2 + unpermute;
  const double message = ratio * 3 * forward / 4;
  for (int b = 0; b < blocks; ++b) {
    const auto add = [&](ChainId chain, std::initializer_list<double> seconds, double scale,
                         Lane lane = Lane::compute) {
      for (const double s : seconds) w.of(chain).push_back({lane, Seconds(s * scale)});
    };
    double load = draw.log_between(.7, 1.5);
    add(ChainId::forward, {norm, qkv, attention, out, norm, router}, 1);
    add(ChainId::forward, {message}, load, Lane::network);
    add(ChainId::forward, {fc1, swiglu, fc2}, load);
    add(ChainId::forward, {message}, load, Lane::network);
    add(ChainId::forward, {unpermute}, load);
    load = draw.log_between(.7, 1.5);
    add(ChainId::backward, {unpermute}, 2 * load);
    add(ChainId::backward, {message}, load, Lane::network);
    add(ChainId::backward, {fc2, swiglu, fc1}, 2 * load);
    add(ChainId::backward, {message}, load, Lane::network);
    add(ChainId::backward, {router, norm, out, attention, qkv, norm}, 2);
  }
  const double copy = draw.log_between(.02, .5) * 3 * forward * blocks;
  add_copies(w, draw, {draw.up_to(3), draw.up_to(3)}, {copy * .3, copy});
  return w;
}

}  // namespace spillway
