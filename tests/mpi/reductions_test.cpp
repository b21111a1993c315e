// Gradients reduced beside cool-down: seconds as projected, memory as foreseen, part of the time hidden, and an iteration
// that one rank loses in the middle of it ends like any other.
#include "device/fault.hpp"
#include "run/policy_projection.hpp"
#include "support.hpp"

namespace spillway::test {
namespace {

class Reductions : public testing::TestWithParam<Variant> {
 protected:
  /// Blocks whose computation hides something on the machine of the tests.
  Case laid_out(bool overlap) const {
    const auto& [name, layout, settings] = GetParam();
    return tiny_case(joined(joined(settings_of(layout, 4 * layout.data),
                                   {fmt::format("parallel.overlap_gradients={}", overlap), "training.iterations=3",
                                    "training.sequence_length=64", "provisioning.predicted_iterations=0",
                                    fmt::format("model.num_hidden_layers={}", 4 * layout.pipeline)}),
                            settings));
  }
};

TEST_P(Reductions, LeaveTheBooksAndTheProjectedSeconds) {
  const Trial plain(laid_out(false)), beside(laid_out(true));
  const Case& c = beside.run_case();
  const auto expected = checksums(plain.run("oracle"));
  for (const char* policy : {"oracle", "full", "flexible"}) {
    SCOPED_TRACE(policy);
    const PolicyRun run = beside.run(policy);
    ASSERT_FALSE(run.infeasible) << *run.infeasible;
    EXPECT_THAT(run.reasons, testing::IsEmpty());
    EXPECT_EQ(checksums(run), expected);
    Seconds hidden;
    for (const RankRecord& rank : run.ranks) {
      EXPECT_EQ(rank.peak.activation, *rank.predicted_activation_peak) << "rank " << rank.rank;
      for (const RankIteration& i : rank.iterations) {
        EXPECT_LE(i.hidden_gradient_reduction_seconds, i.gradient_reduction_seconds);
        hidden += i.hidden_gradient_reduction_seconds;
      }
    }
    if (session().rank() != 0) continue;  // which has the records of all
    EXPECT_GT(hidden, Seconds(0));
    const MachineTime time(c.machine);
    const PolicyRun projected =
        project_policy({c, beside.routing(), beside.context().schedule, time}, policy, c.training.iterations);
    ASSERT_EQ(projected.iterations.size(), run.iterations.size());
    for (std::size_t i = 0; i < run.iterations.size(); ++i)
      EXPECT_EQ(projected.iterations[i].seconds, run.iterations[i].seconds) << "iteration " << i;
  }
}

TEST_P(Reductions, GoOnWhereARankHasLostTheIteration) {
  Case c = laid_out(true);
  const auto expected = checksums(Trial(c).run("oracle"));
  for (const ClockKind clock : {ClockKind::virtual_time, ClockKind::wall}) {
    c.clock = clock;
    c.allow_oversubscribed = true;
    Watchdog watchdog(Seconds(60), fmt::format("rank {}", session().rank()));
    const Trial trial(c);
    RunContext context = trial.context();
    context.watchdog = &watchdog;
    device::injected_fault = device::Fault::late_loss;
    const PolicyRun run = PolicyRunner(context, "keep").run();
    device::injected_fault = device::Fault::none;
    EXPECT_EQ(checksums(run), expected);
    if (clock == ClockKind::wall) continue;  // it is the iteration before the clock counts that is lost
    EXPECT_EQ(run.iterations.size(), expected.size() + 1);
    ASSERT_TRUE(run.iterations.front().oom.has_value());
    EXPECT_EQ(run.iterations.front().oom->rank, 0);
    EXPECT_EQ(run.iterations.front().oom->operator_name, "late_loss");
  }
}

const std::vector<std::string> chunks{"parallel.virtual_stages=2"}, gpipe{"parallel.schedule=gpipe"},
    fused{"parallel.schedule=dual_batch"};

INSTANTIATE_TEST_SUITE_P(Ranks2, Reductions,
                         testing::Values(Variant{"replicas", {1, 2, 1}, {}}, Variant{"exchanges", {1, 2, 2}, {}},
                                         Variant{"chunks", {1, 2, 2}, chunks},
                                         Variant{"tensor_ranks", {1, 1, 2, 2}, {}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks4, Reductions,
                         testing::Values(Variant{"replicas", {2, 2, 1}, {}}, Variant{"exchanges", {2, 2, 2}, {}},
                                         Variant{"two_groups", {1, 4, 2}, chunks}, Variant{"chunks", {2, 2, 1}, chunks},
                                         Variant{"gpipe", {2, 2, 2}, gpipe}, Variant{"fused", {2, 2, 2}, fused},
                                         Variant{"tensor_ranks", {1, 2, 2, 2}, chunks}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks8, Reductions,
                         testing::Values(Variant{"two_groups", {2, 4, 2}, chunks}, Variant{"fused", {4, 2, 2}, fused},
                                         Variant{"tensor_ranks", {2, 2, 4, 2}, {}}),
                         name_of);

}  // namespace
}  // namespace spillway::test
