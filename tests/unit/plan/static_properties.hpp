#pragma once
// What every static planner promises, for stages drawn at random.
#include <gtest/gtest.h>

#include <functional>

#include "static_stage.hpp"

namespace spillway {

struct PlannerUnderTest {
  std::string policy;
  PolicyOptions options;
  std::function<StaticChoice(const StageFacts&)> plan;
  /// x balance: what it plans for, given what it is asked to.
  std::function<double(double)> load;
  /// Plans it may always choose.
  std::function<std::vector<std::vector<Mitigations>>(const StageFacts&)> least;
};

inline StaticStage random_capped_stage(std::uint64_t seed, const PlannerUnderTest& planner) {
  StaticStage s = random_stage(seed);
  Draw draw(seed + (std::uint64_t{1} << 32));
  const PeakRange range = peak_range(s, planner.load(s.load));
  s.cap = range.at(draw.uniform(-0.3, 1.1));
  if (draw.below(3) == 0) s.host_cap = Bytes(draw.below((range.most - range.least).value + 2));
  s.machine.shared_memory = draw.below(8) == 0;
  if (s.machine.shared_memory) s.host_cap = Bytes(0);
  return s;
}

inline bool within(const StaticPeak& peak, const StaticStage& s) {
  return peak.device <= s.cap && peak.host <= s.host_cap;
}

/// The predicted peaks are those of the books, and a plan fits whenever one of the planner's least does; where none does,
/// none needs less.
inline void expect_fits_if_the_least_does(const PlannerUnderTest& planner, std::uint64_t seed) {
  const StaticStage s = random_capped_stage(seed, planner);
  const StageFactsOf facts(s);
  const double load = planner.load(s.load);
  const StaticChoice choice = planner.plan(*facts);
  ASSERT_EQ(choice.fits, within(choice.peak, s)) << "seed " << seed;
  for (const auto& plan : planner.least(*facts)) {
    const StaticPeak least = static_peak(*facts, plan, load);
    ASSERT_TRUE(choice.fits || !within(least, s)) << "seed " << seed;
    ASSERT_TRUE(choice.fits || least.host > s.host_cap || choice.peak.device <= least.device) << "seed " << seed;
  }
  const StaticPeak books = carried_out(s, *make_policy(planner.policy, planner.options), load);
  const Bytes reduction = s.peak_of_gradient_step();
  ASSERT_EQ(books.device, std::max(choice.peak.device, reduction)) << "seed " << seed;
  ASSERT_EQ(books.host, s.machine.shared_memory ? Bytes(0) : choice.peak.host) << "seed " << seed;
}

inline void expect_larger_caps_are_never_slower(const PlannerUnderTest& planner, std::uint64_t seed) {
  StaticStage s = random_capped_stage(seed, planner);
  const PeakRange range = peak_range(s, planner.load(s.load));
  StaticChoice before;
  for (int step = -2; step <= 10; ++step) {
    s.cap = range.at(0.1 * step);
    const StaticChoice choice = planner.plan(*StageFactsOf(s));
    if (before.fits) {
      ASSERT_TRUE(choice.fits) << "seed " << seed;
      ASSERT_LE(choice.added, before.added) << "seed " << seed << ", step " << step;
    }
    before = choice;
  }
  ASSERT_TRUE(before.fits) << "seed " << seed;  // the cap that keeping everything needs
  ASSERT_EQ(before.added, Seconds(0)) << "seed " << seed;
}

}  // namespace spillway
