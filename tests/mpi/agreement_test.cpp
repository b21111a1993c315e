// Gradients do not depend, in any bit, on the policy, the clock or a restart.
#include "device/fault.hpp"
#include "support.hpp"

namespace spillway::test {
namespace {

/// Six iterations whose burst does not fit: a cap that calm iterations of `policy` just keep, at balanced load and a
/// fallback that fits always.
Case case_with_spikes(const Variant& variant, const std::string& policy) {
  std::vector<std::string> settings =
      joined(settings_of(variant.layout, 4 * variant.layout.data),
             {"training.iterations=6", "routing.burst_length=1", "routing.burst_fraction=0.3333",
              "provisioning.margin=1.0", "provisioning.calm_iterations=1"});
  settings = joined(std::move(settings), variant.settings);
  Case c = tiny_case(settings);
  const Trial trial(c);
  Bytes calm, burst(std::int64_t{1} << 60);
  for (std::int64_t i = 0; i < c.training.iterations; ++i) {
    const Bytes peak = trial.forecast_peak(policy, i);
    if (trial.routing().in_burst(i))
      burst = std::min(burst, peak);
    else
      calm = std::max(calm, peak);
  }
  EXPECT_LT(calm, burst) << "the case has no spike";
  c.memory.cap = calm;
  return c;
}

class Restarts : public testing::TestWithParam<Variant> {};

TEST_P(Restarts, LeaveTheGradientsOfAnUndisturbedRun) {
  for (const char* policy : {"keep", "selective"}) {
    Case c = case_with_spikes(GetParam(), policy);
    const auto expected = checksums(Trial(c).run("oracle"));
    ASSERT_EQ(expected.size(), 6u);
    for (const int every : {1, 3})
      for (const ClockKind clock : {ClockKind::virtual_time, ClockKind::wall}) {
        SCOPED_TRACE(fmt::format("{}, a checkpoint every {}, {} clock", policy, every,
                                 clock == ClockKind::wall ? "wall" : "virtual"));
        c.training.checkpoint_every = every;
        c.clock = clock;
        c.allow_oversubscribed = true;
        const PolicyRun run = Trial(c).run(policy);
        ASSERT_FALSE(run.infeasible) << *run.infeasible;
        EXPECT_THAT(run.reasons, testing::IsEmpty());
        EXPECT_EQ(checksums(run), expected);
        const auto lost =
            std::count_if(run.iterations.begin(), run.iterations.end(), [](const auto& i) { return !i.completed(); });
        const auto restarts =
            std::count_if(run.iterations.begin(), run.iterations.end(), [](const auto& i) { return i.restarted; });
        EXPECT_GE(lost, 2) << "both bursts";
        EXPECT_GE(restarts, 3);
        if (every == 3) {
          EXPECT_GT(run.iterations.size(), 6u + lost) << "completed iterations are done again";
        }
        for (const RankRecord& rank : run.ranks) {
          EXPECT_EQ(rank.peak.activation, *rank.predicted_activation_peak) << "rank " << rank.rank;
          EXPECT_LE(rank.peak.total, c.memory.cap) << "rank " << rank.rank;
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks2, Restarts,
                         testing::Values(Variant{"one_stage", {1, 2, 2}, {}},
                                         Variant{"two_tensor_ranks", {1, 1, 2, 2}, {}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks4, Restarts,
                         testing::Values(Variant{"two_stages", {2, 2, 2}, {}}, Variant{"one_stage", {1, 4, 4}, {}},
                                         Variant{"two_tensor_ranks", {2, 1, 2, 2}, {}},
                                         Variant{"weights_at_combine", {2, 2, 2}, {"model.inventory=with_combine"}}),
                         name_of);

class Clocks : public testing::TestWithParam<Variant> {
 protected:
  Case tiny(ClockKind clock) const {
    const auto& [name, layout, settings] = GetParam();
    Case c = tiny_case(joined(settings_of(layout, 4 * layout.data), settings));
    c.clock = clock;
    c.allow_oversubscribed = true;
    return c;
  }
};

TEST_P(Clocks, DoNotChangeGradientsUnderAnyPolicy) {
  const Trial projected(tiny(ClockKind::virtual_time)), measured(tiny(ClockKind::wall));
  const auto expected = checksums(projected.run("oracle"));
  EXPECT_EQ(expected.size(), 4u);
  for (const char* policy : {"oracle", "keep", "selective", "full"}) {
    EXPECT_EQ(checksums(projected.run(policy)), expected) << policy;
    EXPECT_EQ(checksums(measured.run(policy)), expected) << policy << " on the wall clock";
  }
}

TEST_P(Clocks, GiveTheSameVirtualSecondsTwice) {
  const Trial trial(tiny(ClockKind::virtual_time));
  for (const char* policy : {"keep", "full"}) {
    const PolicyRun first = trial.run(policy), second = trial.run(policy);
    EXPECT_EQ(first.iterations, second.iterations);
    ASSERT_EQ(first.ranks.size(), second.ranks.size());
    for (std::size_t r = 0; r < first.ranks.size(); ++r)
      for (std::size_t i = 0; i < first.iterations.size(); ++i) {
        RankIteration a = first.ranks[r].iterations[i], b = second.ranks[r].iterations[i];
        a.decision_seconds = b.decision_seconds = Seconds(0);  // wall time on either clock
        EXPECT_EQ(a, b) << "rank " << r << ", iteration " << i;
      }
  }
}

TEST_P(Clocks, ChargeAProductThatIsExecutedTwice) {
  const Trial trial(tiny(ClockKind::virtual_time));
  const PolicyRun plain = trial.run("keep");
  device::injected_fault = device::Fault::extra_product;
  const PolicyRun longer = trial.run("keep");
  device::injected_fault = device::Fault::none;
  EXPECT_EQ(checksums(longer), checksums(plain));
  ASSERT_EQ(longer.iterations.size(), plain.iterations.size());
  for (std::size_t i = 0; i < plain.iterations.size(); ++i)
    EXPECT_GT(longer.iterations[i].seconds, plain.iterations[i].seconds) << "iteration " << i;
}

INSTANTIATE_TEST_SUITE_P(Ranks2, Clocks, testing::Values(Variant{"two_stages", {2, 1, 1}, {}}), name_of);
INSTANTIATE_TEST_SUITE_P(Ranks4, Clocks,
                         testing::Values(Variant{"two_stages", {2, 2, 2}, {}},
                                         Variant{"expert_replicas", {1, 4, 2}, {}},
                                         Variant{"two_tensor_ranks", {2, 1, 2, 2}, {}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks8, Clocks,
                         testing::Values(Variant{"four_stages", {4, 2, 2}, {}},
                                         Variant{"two_stages_of_two_tensor_ranks", {2, 2, 4, 2}, {}}),
                         name_of);

}  // namespace
}  // namespace spillway::test
