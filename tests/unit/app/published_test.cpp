// The published cases against the numbers that are published or follow from them, and the two forms of a plan.
#include <filesystem>
#include <map>

#include "app/plan_report.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

using testing::HasSubstr;

const std::filesystem::path folder = std::filesystem::path(SPILLWAY_SOURCE_DIR) / "inputs/runs/published";

Case published(const std::string& name, std::vector<std::string> settings = {}) {
  return read_case({folder / (name + ".toml"), std::move(settings)});
}

struct Row {
  int devices, chunks;
  std::int64_t experts_per_rank, expert_replicas;
};
const std::map<std::string, Row> table = {{"188b-128", {128, 4, 2, 1}},      {"319b-256", {256, 4, 3, 1}},
                                          {"423b-512", {512, 2, 2, 1}},      {"629b-1024", {1024, 2, 3, 2}},
                                          {"783b-2048", {2048, 4, 3, 4}},    {"835b-4096", {4096, 2, 2, 4}},
                                          {"1041b-12288", {12288, 2, 2, 12}}};

TEST(Published, EveryCaseIsValidAndHasTheDevicesOfItsName) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files += entry.path().extension() == ".toml";
  EXPECT_EQ(files, table.size());
  for (const auto& [name, row] : table) {
    SCOPED_TRACE(name);
    const Case c = published(name);
    EXPECT_EQ(c.name, name);
    EXPECT_NO_THROW(validate(c, row.devices));
    const Grid grid(c.grid);
    EXPECT_EQ(grid.ranks(), row.devices);
    EXPECT_EQ(chunks_of_stages(c), row.chunks);
    EXPECT_EQ(c.model.num_experts / grid.expert(), row.experts_per_rank);
    EXPECT_EQ(grid.expert_replicas(), row.expert_replicas);
    EXPECT_EQ(c.training.micro_batches, 56);
    EXPECT_FALSE(c.model.head);
    EXPECT_EQ(c.memory.cap, Bytes(64'000'000'000));
    EXPECT_EQ(parse_case(canonical_text(c)), c);
  }
}

TEST(Published, ParametersLieNearTheNames) {
  for (const auto& [name, row] : table) {
    const Case c = published(name, {"model.head=true"});
    const double billions = std::stod(name.substr(0, name.find('b')));
    EXPECT_NEAR(static_cast<double>(count_parameters(c.model).total()) * 1e-9, billions, 0.0065 * billions) << name;
  }
}

TEST(Published, Plan423BReproducesTheDerivedNumbers) {
  const Case c = published("423b-512");
  const PlanReport report = make_plan(c, {});
  EXPECT_NEAR(report.seconds_at_peak().value, 5.195, 0.0005);
  EXPECT_EQ(report.memory.axis.balanced, 12288);
  // 17.92 GB of experts and attention; routers and norms, whose optimizer state all 64 ranks of a stage share, add 0.0264.
  for (const StaticFacts& stage : report.stages)
    EXPECT_NEAR(static_cast<double>(stage.total().value), 17.918e9 + 0.0264e9, 0.0005e9);
  EXPECT_DOUBLE_EQ(report.stages[0].live_micro_batches, 11.5);
  EXPECT_EQ(report.layer.kind, BlockKind::moe);
}

TEST(Published, UnderProvisionedFitsAtBalanceAndFullRecomputeAlways) {
  for (const auto& [name, row] : table) {
    const Case c = published(name, {"model.inventory=default"});
    const PlanReport report = make_plan(c, {});
    for (const PolicyPeaks& policy : report.memory.policies) {
      if (policy.policy.name == "full") {
        EXPECT_EQ(report.stops_at(policy.rows_that_fit()), std::nullopt) << name;
      }
      if (policy.policy.name == "selective") {
        EXPECT_EQ(report.fits(policy, report.balance), true) << name;
        EXPECT_LT(report.stops_at(policy.rows_that_fit()).value_or(1e9), 2.6) << name;  // the published peak
      }
    }
  }
}

TEST(PlanReport, TextAndJsonSayTheSame) {
  const Case c = published("319b-256");
  const PlanReport report = make_plan(c, {"something to know"});
  const std::string text = plan_text(report);
  const Json json = plan_json(report);
  EXPECT_THAT(text, HasSubstr("warning     something to know"));
  EXPECT_EQ(json["warnings"][0], "something to know");
  for (const Json& stage : json["stages"])
    EXPECT_THAT(text, HasSubstr(fmt::format("{:.3f}\n", stage["static_bytes"]["total"].get<double>() * 1e-9)));
  for (const Json& policy : json["policies"])
    for (const Json& stage : policy["stages"])
      for (const Json& load : stage["loads"])
        EXPECT_THAT(text, HasSubstr(fmt::format("{:>10.3f}", load["peak_bytes"].get<double>() * 1e-9)));
  EXPECT_EQ(json["load"]["bound"], 32.0 * 3 / 6);
  EXPECT_EQ(json["config"], config_json(c));
}

TEST(PlanReport, DenseModelsHaveNoLoads) {
  Case c = valid_case();
  c.model.first_k_dense_replace = c.model.num_hidden_layers;
  c.model.intermediate_size = 64;
  const PlanReport report = make_plan(c, {});
  EXPECT_EQ(report.memory.axis.loads, (std::vector<double>{1, 1.15}));
  EXPECT_EQ(report.layer.kind, BlockKind::dense);
  const PolicyPeaks& keep = report.memory.policies[1];
  EXPECT_EQ(report.stops_at(keep.rows_that_fit()), std::nullopt);
  EXPECT_EQ(keep.stages[0].at[0], keep.stages[0].at[1]);
  c.memory.cap = Bytes(1);
  EXPECT_EQ(make_plan(c, {}).stops_at(make_plan(c, {}).memory.policies[1].rows_that_fit()), 0);
}

}  // namespace
}  // namespace spillway::app
