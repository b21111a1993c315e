// Every kind of load runs to a valid end, ranks and experts without a token included.
#include "run/experiment.hpp"
#include "support.hpp"
#include "workload/routing/presets.hpp"

namespace spillway::test {
namespace {

class Workloads : public testing::TestWithParam<std::string> {};

TEST_P(Workloads, RunToAValidEnd) {
  std::vector<std::string> settings =
      joined(settings_of({1, 4, 4}, 16),
             {"routing.preset=" + GetParam(), "model.num_experts=16", "model.num_experts_per_tok=4",
              "routing.reference_ranks=4", "routing.peak=2", "training.iterations=2", "routing.burst_fraction=0.5",
              "provisioning.policies=[\"keep\", \"selective\", \"full\"]"});
  if (GetParam() == "trace") settings.push_back("routing.trace=mixtral_e16k4_rank_tokens.csv");
  const Case c = tiny_case(settings);
  const Report report = run_experiment(c, session());
  EXPECT_THAT(invalid_reasons(report), testing::IsEmpty());
  ASSERT_EQ(report.runs.size(), 3u);
  for (const PolicyRun& run : report.runs) {
    EXPECT_FALSE(run.infeasible.has_value());
    EXPECT_EQ(checksums(run).size(), 2u);
  }
}

std::vector<std::string> all_presets() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Ranks4, Workloads, testing::ValuesIn(all_presets()),
                         [](const auto& preset) { return preset.param; });

TEST(Ranks4_RanksWithoutTokens, AreThereAndTakePartInEveryMessage) {
  const Case c = tiny_case(joined(settings_of({1, 4, 4}, 16), {"routing.preset=empty", "routing.reference_ranks=4",
                                                               "model.num_experts=8", "training.iterations=2"}));
  const Trial trial(c);
  std::vector<std::int32_t> rows(8);
  std::int64_t idle = 0;
  for (std::int64_t g = 0; g < c.global_batch(); ++g) {
    trial.routing().rows_per_expert({0, c.model.first_k_dense_replace, g}, rows);
    for (int rank = 0; rank < 4; ++rank) idle += rows[2 * rank] + rows[2 * rank + 1] == 0;
  }
  EXPECT_GE(idle, c.global_batch()) << "the workload leaves a rank without tokens in every sequence";
  for (const char* policy : {"keep", "selective", "full"}) {
    const PolicyRun run = trial.run(policy);
    EXPECT_THAT(run.reasons, testing::IsEmpty());
    EXPECT_EQ(checksums(run).size(), 2u);
  }
}

}  // namespace
}  // namespace spillway::test
