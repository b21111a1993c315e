// Shares of a micro-batch's tokens: they cover it, and their choices and rows are those of its sequences.
#include "workload/routing/token_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace spillway {
namespace {

using testing::ElementsAre;

TEST(TokenRuns, CutSequencesWhereTheShareBeginsAndEnds) {
  EXPECT_THAT(token_runs(7, 10, 0, 10), ElementsAre(TokenRun{7, 0, 10}));
  EXPECT_THAT(token_runs(7, 10, 5, 5), ElementsAre(TokenRun{7, 5, 5}));
  EXPECT_THAT(token_runs(7, 10, 15, 15), ElementsAre(TokenRun{8, 5, 5}, TokenRun{9, 0, 10}));
  EXPECT_THAT(token_runs(7, 10, 8, 14), ElementsAre(TokenRun{7, 8, 2}, TokenRun{8, 0, 10}, TokenRun{9, 0, 2}));
}

TEST(TokenRuns, RowsOfSharesAreThoseOfTheirChoicesAndAddUpToTheSequences) {
  const RoutingProblem problem{8, 2, 3, 12, 6};
  RoutingOptions options;
  options.preset = "balanced";
  options.reference_ranks = 1;
  const auto source = make_routing_source(options, problem);
  const std::int64_t sequences = 3, tokens = sequences * problem.sequence_length;
  const auto whole = rows_of(*source, problem, {1, 2, 0}, token_runs(2, problem.sequence_length, 0, tokens));
  const auto all = choices_of(*source, problem, {1, 2, 0}, token_runs(2, problem.sequence_length, 0, tokens));
  for (const std::int64_t shares : {1, 2, 4, 6}) {
    std::vector<std::int64_t> sum(8);
    std::vector<std::int32_t> joined;
    for (std::int64_t i = 0; i < shares; ++i) {
      const auto runs = token_runs(2, problem.sequence_length, i * tokens / shares, tokens / shares);
      const auto choices = choices_of(*source, problem, {1, 2, 0}, runs);
      std::vector<std::int64_t> counted(8);
      for (const std::int32_t expert : choices) ++counted[static_cast<std::size_t>(expert)];
      EXPECT_EQ(rows_of(*source, problem, {1, 2, 0}, runs), counted);
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += counted[e];
      joined.insert(joined.end(), choices.begin(), choices.end());
    }
    EXPECT_EQ(sum, whole);
    EXPECT_EQ(joined, all);
  }
}

}  // namespace
}  // namespace spillway
