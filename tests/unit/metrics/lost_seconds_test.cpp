#include "metrics/lost_seconds.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "base/random.hpp"
#include "metrics/summary.hpp"
#include "sample.hpp"

namespace spillway {
namespace {

using sample::iteration;
using sample::make_run;
using sample::part;

LostSeconds split(const PolicyRun& run, const PolicyRun& oracle, std::size_t rank = 0) {
  return split_lost_seconds(run, run.ranks[rank], oracle_seconds(run, oracle), Seconds(10));
}

TEST(LostSeconds, OfARankFollowTheHandWorkedSplit) {
  const LostSeconds lost = split(sample::selective(), sample::oracle(), 0);
  EXPECT_EQ(lost.exposed_mitigation, Seconds(0.25 + 0.125));
  EXPECT_EQ(lost.conservative, Seconds(4 - 2));
  EXPECT_EQ(lost.lost_work, Seconds(1.5)) << "up to the event, without draining";
  EXPECT_EQ(lost.cold_start, Seconds(20));
  EXPECT_EQ(lost.waiting, Seconds(0.25 + 0.125));
}

TEST(LostSeconds, MitigationBeyondTheExcessIsNotLost) {
  const LostSeconds lost = split(sample::selective(), sample::oracle(), 1);
  EXPECT_EQ(lost.exposed_mitigation, Seconds(0.5 + 0.125)) << "1.0 s of mitigation in 0.5 s of excess";
  EXPECT_EQ(lost.waiting, Seconds(0.125));
}

TEST(LostSeconds, PartsSumExactlyToTimeBeyondTheOracleOnEveryRankAndForTheJob) {
  const PolicyRun run = sample::selective(), oracle = sample::oracle();
  const Seconds whole = all_seconds(run, Seconds(10)) - all_seconds(oracle, Seconds(10));
  EXPECT_EQ(whole, Seconds(24.25));
  const Evaluation e = evaluate(run, {&oracle, "run", {}}, sample::facts());
  for (const Summary& rank : e.ranks) {
    EXPECT_EQ(rank.lost_seconds.total(), whole);
    EXPECT_EQ(rank.restart_equivalent_cost, 2.425);
  }
  EXPECT_EQ(e.job.lost_seconds.exposed_mitigation, Seconds(0.5)) << "mean over ranks";
  EXPECT_EQ(e.job.lost_seconds.waiting, Seconds(0.25));
  EXPECT_EQ(e.job.lost_seconds.total(), whole);
  EXPECT_EQ(e.job.restart_equivalent_cost, 2.425);
}

TEST(LostSeconds, LeaveNoRemainderOnRandomRuns) {
  const CounterRandom random(7);
  std::uint64_t draw = 0;
  const auto uniform = [&] { return random.uniform(draw++); };
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<IterationRecord> records, reference;
    std::vector<RankIteration> parts;
    for (std::int64_t index = 0; index < 40; ++index) {
      if (uniform() < 0.2) {
        records.push_back(iteration(index, 9, "p"));
        records.back().oom = OutOfMemory{0, Seconds(uniform()), "fc1"};
        parts.push_back(part(uniform()));
      }
      records.push_back(iteration(index, 1 + uniform(), "p"));
      records.back().restarted = uniform() < 0.2;
      records.back().conservative = uniform() < 0.3;
      parts.push_back(part(uniform()));
      reference.push_back(iteration(index, 0.5 + uniform(), "oracle"));
    }
    const PolicyRun run = make_run("p", records, {parts});
    const PolicyRun oracle = make_run("oracle", reference, {std::vector<RankIteration>(40)});
    const double whole = (all_seconds(run, Seconds(10)) - all_seconds(oracle, Seconds(10))).value;
    EXPECT_NEAR(split(run, oracle).total()->value, whole, 1e-12 * std::abs(whole) + 1e-12);
  }
}

TEST(LostSeconds, OfTheOracleItselfAreZero) {
  const PolicyRun oracle = sample::oracle();
  EXPECT_EQ(split(oracle, oracle).total(), Seconds(0));
  const Evaluation e = evaluate(oracle, {&oracle, "run", {}}, sample::facts());
  EXPECT_EQ(e.fom->provisioning_efficiency, 1.0);
}

TEST(LostSeconds, AnIterationFasterThanTheOraclesIsNegativeWaitingOnly) {
  const PolicyRun run = make_run("p", {iteration(0, 1.5, "p")}, {{part(0.25)}});
  const LostSeconds lost = split(run, sample::oracle());
  EXPECT_EQ(lost.exposed_mitigation, Seconds(0));
  EXPECT_EQ(lost.waiting, Seconds(-0.5));
}

TEST(LostSeconds, CompletedIterationsUndoneByAnOlderSnapshotAreLostWork) {
  // Snapshot before iteration 0; 0 completes, 1 is lost, both are redone.
  IterationRecord lost = iteration(1, 1, "p");
  lost.oom = OutOfMemory{0, Seconds(1), "fc1"};
  IterationRecord redone = iteration(0, 3, "full");
  redone.restarted = redone.conservative = true;
  const PolicyRun run = make_run("p", {iteration(0, 2.5, "p"), lost, redone, iteration(1, 2, "p")}, {{{}, {}, {}, {}}});
  EXPECT_EQ(completed_iterations(run), (std::vector<bool>{false, false, true, true}));
  const LostSeconds split_run = split(run, sample::oracle());
  EXPECT_EQ(split_run.lost_work, Seconds(3.5));
  EXPECT_EQ(split_run.total(), Seconds(2.5 + 1 + 3 + 2 + 10 - 4));
}

TEST(LostSeconds, WithoutAnOracleOnlyLostWorkAndColdStartsAreKnown) {
  const PolicyRun run = sample::selective();
  const LostSeconds lost = split_lost_seconds(run, run.ranks[0], std::nullopt, Seconds(10));
  EXPECT_EQ(lost.lost_work, Seconds(1.5));
  EXPECT_EQ(lost.cold_start, Seconds(20));
  EXPECT_FALSE(lost.exposed_mitigation);
  EXPECT_FALSE(lost.conservative);
  EXPECT_FALSE(lost.waiting);
  EXPECT_FALSE(lost.total());
}

TEST(LostSeconds, OracleThatMissesAnIterationIsNoOracle) {
  PolicyRun oracle = sample::oracle();
  oracle.iterations.pop_back();
  EXPECT_FALSE(oracle_seconds(sample::selective(), oracle));
  for (RankRecord& rank : oracle.ranks) rank.iterations.pop_back();
  const Evaluation e = evaluate(sample::selective(), {&oracle, "run", {}}, sample::facts());
  EXPECT_FALSE(e.job.oracle);
  EXPECT_THAT(e.job.oracle_reason.value(), ::testing::HasSubstr("did not complete"));
}

}  // namespace
}  // namespace spillway
