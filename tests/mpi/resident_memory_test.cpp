// The peak that a run reports is memory that the process really took.
#include <fstream>

#include "support.hpp"

namespace spillway::test {
namespace {

/// A figure of /proc/self/status in bytes, VmRSS or VmHWM.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == key + ":") {
      std::int64_t kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  ADD_FAILURE() << "/proc/self/status has no " << key;
  return 0;
}

void expect_growth_is_reported_peak(Layout layout) {
  // One iteration without a cap: no snapshot beside the arena. Most of the peak are activations of one micro-batch.
  const Trial trial(
      tiny_case(joined(settings_of(layout, 8 * layout.data, 8),
                       {"training.iterations=1", "training.sequence_length=256", "model.hidden_size=256",
                        "model.moe_intermediate_size=256", "model.num_experts=8", "model.num_experts_per_tok=4",
                        "model.num_hidden_layers=8", "model.intermediate_size=512", "model.head_dim=64",
                        "routing.preset=balanced", "memory.cap=8 GiB"})));
  // The libraries take their own memory at first use.
  Trial(tiny_case(settings_of(layout, 8 * layout.data))).run("oracle");
  const std::int64_t before = status_bytes("VmRSS");
  PolicyRunner runner(trial.context(), "oracle");
  const PolicyRun run = runner.run();
  const std::int64_t growth = status_bytes("VmHWM") - before;
  const std::int64_t peak = runner.engine().arena.ledger().peak().value;
  EXPECT_GT(peak, std::int64_t{200} << 20) << "a large case";
  // Holes between blocks are touched too; the report shows them as reserved_bytes.
  const auto reserved = static_cast<double>(runner.engine().arena.reserved().value);
  EXPECT_NEAR(static_cast<double>(growth), reserved, 0.03 * reserved);
  EXPECT_NEAR(static_cast<double>(growth), static_cast<double>(peak), 0.05 * static_cast<double>(peak));
  for (const RankRecord& rank : run.ranks)
    if (rank.rank == session().rank()) {
      EXPECT_EQ(rank.peak.total.value, peak);
    }
}

TEST(Ranks1_ResidentMemory, GrowsByTheReportedPeak) { expect_growth_is_reported_peak({1, 1, 1}); }
TEST(Ranks2_ResidentMemory, GrowsByTheReportedPeak) { expect_growth_is_reported_peak({1, 2, 2}); }

}  // namespace
}  // namespace spillway::test
