#include "metrics/summary.hpp"

#include <gmock/gmock.h>

#include "base/error.hpp"
#include "sample.hpp"

namespace spillway {
namespace {

using sample::iteration;
using sample::make_run;
using sample::part;

Evaluation evaluate_sample() {
  static const PolicyRun oracle = sample::oracle();
  return evaluate(sample::selective(), {&oracle, "run", {}}, sample::facts());
}

TEST(FiguresOfMerit, CountCompletedTokensOverAllTimeWithLostIterationsAndRestarts) {
  const Evaluation e = evaluate_sample();
  ASSERT_TRUE(e.fom);
  EXPECT_DOUBLE_EQ(e.fom->tokens_per_second, 300 / 30.25);
  EXPECT_DOUBLE_EQ(e.fom->effective_mfu, 300 * 4 / (30.25 * 2 * 1000));
  EXPECT_DOUBLE_EQ(e.fom->effective_tflops, 300 * 4 / 30.25 / 1e12);
  EXPECT_DOUBLE_EQ(e.fom->provisioning_efficiency.value(), 6 / 30.25);
}

TEST(FiguresOfMerit, ChargeTheCasesRestartSecondsWhateverWasMeasured) {
  PolicyRun run = sample::selective();
  const auto before = evaluate(run, {}, sample::facts());
  run.iterations[2].restart_seconds_measured = Seconds(500);
  const auto after = evaluate(run, {}, sample::facts());
  EXPECT_EQ(before.fom->tokens_per_second, after.fom->tokens_per_second);
  EXPECT_EQ(before.job.restart_seconds_measured, Seconds(8.5));
  EXPECT_EQ(after.job.restart_seconds_measured, Seconds(254.5));
  EXPECT_EQ(after.job.restart_seconds, Seconds(10));
}

TEST(Utilization, CountsModelFlopsOverCompletedIterationsInBothConventions) {
  const Summary s = evaluate_sample().job;
  const double capacity = (2.5 + 4 + 2.25) * 2 * 1000;
  EXPECT_DOUBLE_EQ(s.model_flops.value(), 1200);
  EXPECT_DOUBLE_EQ(s.mfu_causal.value(), 1200 / capacity);
  EXPECT_DOUBLE_EQ(s.mfu_noncausal.value(), 1500 / capacity);
}

TEST(Utilization, RecomputedFlopsEarnNoMfuButCountAsHardwareWork) {
  const Summary s = evaluate_sample().job;
  // 10 + 40, 100 + 100, 5 + 5; the 7 + 7 of the lost iteration do not count.
  EXPECT_DOUBLE_EQ(s.hfu_causal.value(), (1200 + 260) / (8.75 * 2 * 1000));
}

TEST(Utilization, OfARankCountsItsOwnFlops) {
  PolicyRun run = make_run("keep", {iteration(0, 2, "keep")}, {{part(0.5, 100)}, {part(0)}});
  run.ranks[0].iterations[0].model_flops_causal = Flops(500);
  run.ranks[0].iterations[0].model_flops_noncausal = Flops(600);
  const Evaluation e = evaluate(run, {}, sample::facts());
  EXPECT_DOUBLE_EQ(e.ranks[0].mfu_causal.value(), 500 / (2.0 * 1000));
  EXPECT_DOUBLE_EQ(e.ranks[0].mfu_noncausal.value(), 600 / (2.0 * 1000));
  EXPECT_DOUBLE_EQ(e.ranks[0].hfu_causal.value(), 600 / (2.0 * 1000));
  EXPECT_FALSE(e.ranks[1].mfu_causal) << "a rank whose FLOPs were not recorded has no MFU, not 0";
}

TEST(IterationSeconds, HaveNearestRankPercentiles) {
  const auto d = evaluate_sample().job.iteration_seconds.value();
  EXPECT_DOUBLE_EQ(d.mean.value, 8.75 / 3);
  EXPECT_EQ(d.p50, Seconds(2.5));
  EXPECT_EQ(d.p95, Seconds(4));
  EXPECT_EQ(d.max, Seconds(4));
  std::vector<Seconds> hundred;
  for (int i = 100; i >= 1; --i) hundred.push_back(Seconds(i));
  EXPECT_EQ(distribution(hundred)->p50, Seconds(50));
  EXPECT_EQ(distribution(hundred)->p95, Seconds(95));
}

TEST(IterationSeconds, OfOneValueAreThatValueAndOfNoneAbsent) {
  const auto d = distribution({Seconds(3)}).value();
  EXPECT_EQ(d.mean, Seconds(3));
  EXPECT_EQ(d.p50, Seconds(3));
  EXPECT_EQ(d.p95, Seconds(3));
  EXPECT_EQ(d.max, Seconds(3));
  EXPECT_FALSE(distribution({}));
}

TEST(Events, AreCountedForTheJobAndForTheRankThatRaisedThem) {
  const Evaluation e = evaluate_sample();
  EXPECT_EQ(e.job.oom_events, 1);
  EXPECT_EQ(e.ranks[0].oom_events, 0);
  EXPECT_EQ(e.ranks[1].oom_events, 1);
  EXPECT_EQ(e.job.restarts, 2);
  EXPECT_EQ(e.job.conservative_iterations, 1);
}

TEST(Sums, OfTheJobAreMeansOfSecondsAndTotalsOfBytes) {
  PolicyRun run = make_run("keep", {iteration(0, 4, "keep"), iteration(1, 4, "keep")}, {{{}, {}}, {{}, {}}});
  RankIteration& a = run.ranks[0].iterations[0];
  a.exposed_communication_seconds = Seconds(1);
  a.all_to_all_seconds = Seconds(2);
  a.hidden_all_to_all_seconds = Seconds(0.5);
  a.overlapped_seconds = Seconds(1);
  a.overlappable_seconds = Seconds(2);
  a.gradient_reduction_seconds = Seconds(4);
  a.hidden_gradient_reduction_seconds = Seconds(1);
  a.bubble_seconds = Seconds(2);
  a.compute_seconds = Seconds(3);
  a.cross_node_bytes = Bytes(70);
  RankIteration& b = run.ranks[1].iterations[1];
  b.all_to_all_seconds = Seconds(2);
  b.hidden_all_to_all_seconds = Seconds(1.5);
  b.overlappable_seconds = Seconds(2);
  b.compute_seconds = Seconds(1);
  b.cross_node_bytes = Bytes(5);
  const Evaluation e = evaluate(run, {}, sample::facts());
  EXPECT_EQ(e.job.exposed_communication_seconds, Seconds(0.5));
  EXPECT_EQ(e.ranks[0].exposed_communication_seconds, Seconds(1));
  EXPECT_DOUBLE_EQ(e.job.hidden_all_to_all.value(), 0.5);
  EXPECT_DOUBLE_EQ(e.ranks[1].hidden_all_to_all.value(), 0.75);
  EXPECT_DOUBLE_EQ(e.job.overlap_efficiency.value(), 0.25);
  EXPECT_DOUBLE_EQ(e.ranks[1].overlap_efficiency.value(), 0);
  EXPECT_DOUBLE_EQ(e.job.hidden_gradient_reduction.value(), 0.25);
  EXPECT_FALSE(e.ranks[1].hidden_gradient_reduction) << "it reduces nothing";
  EXPECT_DOUBLE_EQ(e.job.bubble_fraction.value(), 2.0 / 16);
  EXPECT_DOUBLE_EQ(e.ranks[0].bubble_fraction.value(), 0.25);
  EXPECT_EQ(e.job.cross_node_bytes, 75);
  EXPECT_DOUBLE_EQ(e.job.rank_imbalance.value(), 1.5);
  EXPECT_DOUBLE_EQ(e.ranks[1].rank_imbalance.value(), 0.5);
  EXPECT_FALSE(e.job.hidden_mitigation) << "without mitigation there is no hidden share";
}

TEST(Peaks, OfTheJobAreTheWorstRanksAndErrorsKeepTheirSign) {
  PolicyRun run = make_run("keep", {iteration(0, 4, "keep")}, {{{}}, {{}}});
  ByteLedger ledger(Bytes(1));
  ledger.add(Category::activation_moe, Bytes(100));
  run.ranks[0].peak.include(ledger);
  ledger.remove(Category::activation_moe, Bytes(100));
  ledger.add(Category::parameters, Bytes(300));
  run.ranks[1].peak.include(ledger);
  run.ranks[0].predicted_activation_peak = Bytes(80);
  run.ranks[1].predicted_activation_peak = Bytes(110);
  run.ranks[0].predicted = PredictedSeconds{Seconds(5), Seconds(4)};
  const Summary s = evaluate(run, {}, sample::facts()).job;
  EXPECT_EQ(s.peak->total, Bytes(300));
  EXPECT_EQ(s.peak->category[static_cast<std::size_t>(Category::activation_moe)], Bytes(100));
  EXPECT_EQ(s.peak->category[static_cast<std::size_t>(Category::parameters)], Bytes(300));
  EXPECT_DOUBLE_EQ(s.predicted_activation_error.value(), -0.2);
  EXPECT_DOUBLE_EQ(s.predicted_seconds_error.value(), 0.25);
  EXPECT_FALSE(s.reserved_bytes);
}

TEST(Overload, AveragesOverFactorsOfCompletedIterations) {
  PolicyRun run = sample::selective();
  for (std::size_t i = 0; i < 4; ++i) {
    run.iterations[i].overload_sum = i == 1 ? 1000 : 6.0 + static_cast<double>(i);
    run.iterations[i].overload_count = 4;
    run.iterations[i].overload_max = i == 1 ? 1000 : 3;
    run.iterations[i].overload_max_cum = i == 2 ? 2.5 : 1.5;
  }
  const Evaluation e = evaluate(run, {}, sample::facts());
  EXPECT_DOUBLE_EQ(e.job.overload_avg.value(), (6.0 + 8.0 + 9.0) / 12);
  EXPECT_EQ(e.job.overload_max, 3);
  EXPECT_EQ(e.job.overload_max_cum, 2.5);
  EXPECT_FALSE(e.ranks[0].overload_avg);
}

TEST(Absent, FiguresAreEmptyNotZero) {
  const Evaluation e = evaluate(sample::selective(), {nullptr, {}, "it does not fit"}, sample::facts());
  ASSERT_TRUE(e.fom);
  EXPECT_FALSE(e.fom->provisioning_efficiency);
  EXPECT_FALSE(e.job.restart_equivalent_cost);
  EXPECT_FALSE(e.job.oracle);
  EXPECT_EQ(e.job.oracle_reason, "it does not fit");
  EXPECT_FALSE(e.job.overload_avg);
  EXPECT_FALSE(e.job.loss_first);
  EXPECT_FALSE(e.job.plan_cache_hit_rate);
  EXPECT_FALSE(e.job.migration_bytes);
}

TEST(Absent, InfeasibleRunHasNoColumn) {
  PolicyRun run;
  run.policy = "keep";
  run.infeasible = "needs 300 MiB of 200 MiB";
  const Evaluation e = evaluate(run, {}, sample::facts());
  EXPECT_FALSE(e.fom);
  EXPECT_FALSE(e.job.oom_events);
  EXPECT_FALSE(e.job.peak);
  EXPECT_TRUE(e.ranks.empty());
}

TEST(Absent, RunWithoutACompletedIterationHasNoFigureOfMerit) {
  IterationRecord lost = iteration(0, 1, "keep");
  lost.oom = OutOfMemory{0, Seconds(1), "fc1"};
  const Evaluation e = evaluate(make_run("keep", {lost}, {{{}}, {{}}}), {}, sample::facts());
  EXPECT_FALSE(e.fom);
  EXPECT_FALSE(e.job.iteration_seconds);
  EXPECT_FALSE(e.job.mfu_causal);
}

TEST(Reports18, InvalidRunHasNoFigureOfMerit) {
  PolicyRun run = sample::selective();
  run.reasons = {"loss of iteration 1 is not finite"};
  const Evaluation e = evaluate(run, {}, sample::facts());
  EXPECT_FALSE(e.fom);
  EXPECT_FALSE(e.job.mfu_causal);
  EXPECT_FALSE(e.job.hfu_causal);
  EXPECT_EQ(e.job.oom_events, 1) << "diagnostics stay";
}

TEST(Reports18, FiguresAtScaleDoNotOverflow) {
  constexpr int ranks = 12288;
  RankIteration own;
  own.mitigation_flops = Flops(5'000'000'000'000'000'000);  // two of them pass 2^63
  own.cross_node_bytes = Bytes(1'000'000'000'000'000);      // the job's 1.2e19 pass 2^63
  own.intra_node_bytes = Bytes(1'000'000'000'000);
  RunFacts facts = sample::facts();
  facts.ranks = ranks;
  facts.tokens_per_iteration = 1'000'000'000'000;
  facts.model_flops_per_token_causal = facts.model_flops_per_token_noncausal = 1.8140e11;
  facts.peak_flops = 480e12;
  const PolicyRun run = make_run("keep", {iteration(0, 1e5, "keep"), iteration(1, 1e5, "keep")},
                                 std::vector<std::vector<RankIteration>>(ranks, {own, own}));
  const Evaluation e = evaluate(run, {&run, "run", {}}, facts);
  EXPECT_DOUBLE_EQ(e.fom->tokens_per_second, 1e7);
  EXPECT_DOUBLE_EQ(e.fom->effective_mfu, 1e7 * 1.8140e11 / (12288 * 480e12));
  EXPECT_DOUBLE_EQ(e.job.model_flops.value(), 2e12 * 1.8140e11);
  EXPECT_NEAR(e.job.hfu_causal.value(), (2e12 * 1.8140e11 + 2 * 12288 * 5e18) / (2e5 * 12288 * 480e12), 1e-12);
  EXPECT_DOUBLE_EQ(e.job.cross_node_bytes.value(), 2 * 12288 * 1e15);
  EXPECT_EQ(e.job.intra_node_bytes, 2 * 12288 * 1e12);
}

TEST(Records, ThatContradictEachOtherAreRefused) {
  PolicyRun run = sample::selective();
  run.ranks[1].iterations.pop_back();
  EXPECT_THROW(evaluate(run, {}, sample::facts()), InternalError);
  run = sample::selective();
  run.ranks.pop_back();
  EXPECT_THROW(evaluate(run, {}, sample::facts()), InternalError);
}

}  // namespace
}  // namespace spillway
