// Every file under inputs/ means what it says and survives the way to the other ranks.
#include "app/option_table.hpp"
#include "app/toml.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
const fs::path inputs_folder = fs::path(SPILLWAY_SOURCE_DIR) / "inputs";

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(inputs_folder / folder)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  return names;
}

Case read_input(const std::string& run, std::vector<std::string> settings = {}) {
  return read_case({inputs_folder / "runs" / (run + ".toml"), std::move(settings)});
}

void expect_round_trip(const Case& c) {
  const std::string text = canonical_text(c);
  const Case back = parse_case(text);
  EXPECT_EQ(back, c) << text;
  EXPECT_EQ(canonical_text(back), text);
}

TEST(Inputs, EveryRunIsValidAndRoundTrips) {
  ASSERT_GE(names_in("runs").size(), 4u);
  for (const std::string& run : names_in("runs")) {
    SCOPED_TRACE(run);
    const Case c = read_input(run);
    EXPECT_EQ(c.name, run);
    EXPECT_NO_THROW(validate_real_run(c, {}));
    expect_round_trip(c);
  }
}

TEST(Inputs, EveryModelIsAPossibleShapeAndRoundTrips) {
  ASSERT_GE(names_in("models").size(), 16u);
  for (const std::string& model : names_in("models")) {
    SCOPED_TRACE(model);
    const Case c = read_input("demo", {"model=" + model});
    EXPECT_NO_THROW(validate(c.model));
    expect_round_trip(c);
  }
}

TEST(Inputs, EveryMachineIsPossibleRoundTripsAndStatesEveryConstant) {
  ASSERT_GE(names_in("machines").size(), 2u);
  for (const std::string& machine : names_in("machines")) {
    SCOPED_TRACE(machine);
    const Case c = read_input("demo", {"machine=" + machine});
    EXPECT_NO_THROW(validate(c.machine));
    expect_round_trip(c);
    std::size_t options = 0;
    for (const Option& option : option_table()) options += option.key.starts_with("machine.");
    EXPECT_EQ(read_toml(inputs_folder / "machines" / (machine + ".toml"), "").size() + 1, options);  // all but its name
  }
}

// Machine and model constants as published (BaGuaLu-2, setup), so that a slip of the pen shows.
TEST(Inputs, PublishedMachineHasThePublishedConstants) {
  const MachineProfile m = read_input("demo", {"machine=bw1000"}).machine;
  EXPECT_EQ(m.peak_flops, 480e12);
  EXPECT_EQ(m.node_bandwidth, 400e9);
  EXPECT_EQ(m.network_bandwidth, 4 * 400e9 / 8 / 8);
  EXPECT_EQ(m.link_bandwidth, 96e6 / 2.0e-3);
  EXPECT_EQ(m.restart_seconds.value, 284);
  EXPECT_EQ(m.ranks_per_node, 8);
}

struct Published {
  const char* model;
  double total, active, tolerance;  ///< billions of parameters, embeddings included
};

TEST(Inputs, ModelsHaveTheParametersTheirNamesSay) {
  const Published models[] = {{"188b-a20b", 188, 20, 0.0065},         {"319b-a30b", 319, 30, 0.0065},
                              {"423b-a30b", 423, 30, 0.0065},         {"629b-a30b", 629, 30, 0.0065},
                              {"783b-a35b", 783, 35, 0.0065},         {"835b-a30b", 835, 30, 0.0065},
                              {"1041b-a35b", 1041, 35, 0.0065},       {"319b-a24b", 319, 24, 0.0065},
                              {"423b-a24b", 423, 24, 0.0065},         {"423b-a37b", 423, 36.9, 0.0065},
                              {"deepseek-v3-like", 671, 37.5, 0.001}, {"kimi-k2-like", 1026, 32.7, 0.001},
                              {"glm-4.5-air-like", 106.9, 13, 0.005}, {"mixtral-8x7b", 46.7, 12.9, 0.001}};
  for (const Published& published : models) {
    const ModelShape shape = read_input("demo", {std::string("model=") + published.model}).model;
    EXPECT_NEAR(static_cast<double>(count_parameters(shape).total()) * 1e-9, published.total,
                published.total * published.tolerance)
        << published.model;
    EXPECT_NEAR(static_cast<double>(count_active_parameters(shape)) * 1e-9, published.active, published.active * 0.06)
        << published.model;
  }
}

TEST(Inputs, SparsityVariantsKeepTheTotalAndGiveThePublishedActiveParameters) {
  const auto shape = [](const char* model) { return read_input("demo", {std::string("model=") + model}).model; };
  const auto active = [&](const char* model) {
    return static_cast<double>(count_active_parameters(shape(model))) * 1e-9;
  };
  EXPECT_NEAR(active("423b-a24b"), 24.0, 0.05);
  EXPECT_NEAR(active("423b-a30b"), 30.4, 0.05);
  EXPECT_NEAR(active("423b-a37b"), 36.9, 0.05);
  for (const char* variant : {"423b-a24b", "423b-a37b"}) {
    EXPECT_EQ(count_parameters(shape(variant)).total(), count_parameters(shape("423b-a30b")).total());
  }
  EXPECT_EQ(count_parameters(shape("319b-a24b")).total(), count_parameters(shape("319b-a30b")).total());
}

TEST(RoundTrip, KeepsEveryDoubleBitForBit) {
  Case c;
  c.training.learning_rate = 0.1 + 0.2;
  c.training.adam_epsilon = 1e-30;
  c.machine.peak_flops = 1.0 / 3 * 1e15;
  c.machine.launch = Seconds(5e-324);
  c.training.seed = (std::uint64_t{1} << 62) + 1;
  c.memory.cap = Bytes((std::int64_t{1} << 59) + 1);
  c.layers_per_stage = {4, 3};
  c.routing.trace = "folder with \"quotes\"/\xC3\xA4.csv";
  c.model_name = "";
  expect_round_trip(c);
}

}  // namespace
}  // namespace spillway::app
