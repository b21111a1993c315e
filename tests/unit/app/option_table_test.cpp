// Promises of the option table, checked for every row.
#include "app/option_table.hpp"

#include <set>

#include "support.hpp"

namespace spillway::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct AnyField {
  template <class T>
  requires(!std::is_same_v<T, std::string_view>) operator T() const;
};
template <class Struct, class... Fields>
constexpr std::size_t field_count() {
  if constexpr (requires { Struct{Fields{}..., AnyField{}}; }) {
    return field_count<Struct, Fields..., AnyField>();
  } else {
    return sizeof...(Fields);
  }
}

std::size_t rows_of(const std::string& section) {
  std::size_t rows = 0;
  for (const Option& option : option_table()) rows += option.key.starts_with(section + ".");
  return rows;
}

TEST(OptionTable, HoldsEveryFieldOfTheStructs) {
  EXPECT_EQ(rows_of("model"), field_count<ModelShape>() + 1);      // and the model's name
  EXPECT_EQ(rows_of("parallel"), field_count<GridOptions>() + 8);  // and those of Case itself
  EXPECT_EQ(rows_of("training"), field_count<TrainingOptions>());
  EXPECT_EQ(rows_of("routing"), field_count<RoutingOptions>());
  EXPECT_EQ(rows_of("memory"), field_count<MemoryOptions>());
  EXPECT_EQ(rows_of("provisioning") + 1, field_count<ProvisioningOptions>());  // the policies' options have sections
  EXPECT_EQ(rows_of("flexible") + rows_of("unified") + rows_of("kuai") + rows_of("paged") + rows_of("replay"), 7u);
  EXPECT_EQ(rows_of("machine"), field_count<MachineProfile>());
}

TEST(OptionTable, KeysAreUnique) {
  std::set<std::string> keys;
  for (const Option& option : option_table()) EXPECT_TRUE(keys.insert(option.key).second) << option.key;
}

TEST(OptionTable, EveryDefaultIsAValueItsOptionTakes) { EXPECT_EQ(parse_case(canonical_text(Case{})), Case{}); }

/// A value unlike the default that the option takes.
std::string other_value(const Option& option) {
  if (option.kind == "true/false") return option.load(Case{}).get<bool>() ? "false" : "true";
  if (option.kind == "text") return "other";
  if (option.kind == "list of text") return "full";
  if (option.kind == "list of integers") return "[5, 6]";
  if (option.kind == "list of numbers") return "[5, 6.5]";
  if (option.is_numeric()) {
    const double value = option.load(Case{}).get<double>();
    const double other =
        value == option.limits.least ? option.limits.least + (option.kind == "number" ? 0.5 : 1) : option.limits.least;
    return option.kind == "number" ? fmt::format("{}", other) : fmt::format("{:.0f}", other);
  }
  const std::string first = option.kind.substr(0, option.kind.find(' ')),
                    last = option.kind.substr(option.kind.rfind(' ') + 1);
  return option.load(Case{}) == last ? first : last;
}

TEST(OptionTable, SetsItsOwnFieldAndNoOther) {
  for (const Option& option : option_table()) {
    Case c;
    assign(c, {option.key, value_of_text(other_value(option)), {"--set"}});
    for (const Option& any : option_table()) {
      EXPECT_EQ(any.load(c) != any.load(Case{}), any.key == option.key) << option.key << " and " << any.key;
    }
    EXPECT_FALSE(c == Case{}) << option.key;
  }
}

TEST(ComparableText, ChangesWithEveryOptionButNamesPoliciesAndTheFolderOfTheTrace) {
  const std::set<std::string> free{"name",
                                   "allow_oversubscribed",
                                   "model.name",
                                   "machine.name",
                                   "parallel.network_thread",
                                   "parallel.check_order",
                                   "training.watchdog_seconds",
                                   "provisioning.policies",
                                   "provisioning.predicted_iterations",
                                   "provisioning.margins",
                                   "flexible.choice",
                                   "flexible.share",
                                   "flexible.quantize",
                                   "unified.worst_load",
                                   "kuai.smallest",
                                   "paged.pool",
                                   "replay.file"};
  for (const Option& option : option_table()) {
    Case c;
    assign(c, {option.key, value_of_text(other_value(option)), {"--set"}});
    EXPECT_EQ(comparable_text(c) == comparable_text(Case{}), free.contains(option.key)) << option.key;
  }
  Case here, there;
  here.routing.trace = "inputs/traces/loads.csv";
  there.routing.trace = "/elsewhere/loads.csv";
  EXPECT_EQ(comparable_text(here), comparable_text(there));
  EXPECT_NE(comparable_text(here, "real"), comparable_text(here, "phantom"));
}

TEST(OptionTable, HelpListsEveryKeyWithItsDefaultAndUnit) {
  const std::string help = option_help();
  for (const Option& option : option_table()) {
    EXPECT_THAT(help, HasSubstr("  " + option.key + " = ")) << option.key;
    EXPECT_THAT(help, HasSubstr(option.meaning)) << option.key;
    const std::string unit = option.kind == "size" ? "" : option.unit;  // a size shows its unit in the value
    EXPECT_THAT(help, HasSubstr(unit + "\n      " + option.meaning)) << option.key;
  }
  EXPECT_THAT(help, HasSubstr("  model.hidden_size = 64\n"));
  EXPECT_THAT(help, HasSubstr("  memory.cap = 1 TiB\n"));
  EXPECT_THAT(help, HasSubstr("  machine.launch = 5e-06 s\n"));
  EXPECT_THAT(help, HasSubstr("  clock = virtual\n"));
}

class AbsurdNumbers : public testing::TestWithParam<std::string> {};

TEST_P(AbsurdNumbers, InEveryNumericOptionAreOneClearErrorOnTheCommandLine) {
  for (const Option& option : option_table()) {
    if (!option.is_numeric() && !option.kind.starts_with("list of ")) continue;
    if (option.kind == "list of text") continue;
    Case c;
    const std::string message = input_error_of([&] { assign(c, {option.key, value_of_text(GetParam()), {"--set"}}); });
    EXPECT_THAT(message, HasSubstr("--set: " + option.key + " = " + GetParam())) << option.key;
    EXPECT_EQ(option.load(c), option.load(Case{})) << option.key;
  }
}

/// A value of a file as an error quotes it.
std::string quoted(const std::string& written) {
  if (written == "1e30") return "1e+30";
  if (written == "[[1]]") return "[ [ 1 ] ]";
  if (written == "-1e-3") return "-0.001";
  if (written == "1979-05-27") return "is a date";
  return written.starts_with('"') ? "'" + written.substr(1, written.size() - 2) + "'" : written;
}

TEST_P(AbsurdNumbers, InEveryNumericOptionAreOneClearErrorWithFileAndLine) {
  InputTree inputs;
  for (const Option& option : option_table()) {
    if (!option.is_numeric()) continue;
    const auto dot = option.key.find('.');
    const std::string section = option.key.substr(0, dot), name = option.key.substr(dot + 1);
    inputs.write("runs/case.toml", "[" + section + "]\n" + name + " = " + GetParam() + "\n");
    EXPECT_THAT(inputs.error(), AllOf(HasSubstr("case.toml:2: "), HasSubstr(name), HasSubstr(quoted(GetParam()))))
        << option.key;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, AbsurdNumbers,
                         testing::Values("nan", "inf", "-inf", "-1", "-1e-3", "9223372036854775808", "1e30", "1e999",
                                         "true", "\"twelve\"", "\"-1\"", "\"1e30 GiB\"", "[[1]]", "1979-05-27",
                                         "\"\""));

TEST(OptionTable, WholeNumbersRefuseFractions) {
  Case c;
  EXPECT_THAT(input_error_of([&] {
                assign(c, {"training.iterations", value_of_text("2.5"), {"--set"}});
              }),
              HasSubstr("training.iterations = 2.5: expected a whole number"));
}

TEST(OptionTable, WordsOfEnumerationsAreChecked) {
  Case c;
  assign(c, {"clock", value_of_text("wall"), {"--set"}});
  EXPECT_EQ(c.clock, ClockKind::wall);
  assign(c, {"model.inventory", value_of_text("with_combine"), {"--set"}});
  EXPECT_EQ(c.model.inventory, Inventory::with_combine);
  EXPECT_THAT(input_error_of([&] {
                assign(c, {"clock", value_of_text("real"), {"--set"}});
              }),
              HasSubstr("clock = real: expected one of wall, virtual"));
}

TEST(OptionTable, ListsComeAsTomlOrSeparatedByCommas) {
  Case c;
  assign(c, {"provisioning.policies", value_of_text("keep,full"), {"--set"}});
  EXPECT_EQ(c.provisioning.policies, (std::vector<std::string>{"keep", "full"}));
  assign(c, {"provisioning.policies", value_of_text("[\"selective\"]"), {"--set"}});
  EXPECT_EQ(c.provisioning.policies, (std::vector<std::string>{"selective"}));
  assign(c, {"parallel.layers_per_stage", value_of_text("4,3"), {"--set"}});
  EXPECT_EQ(c.layers_per_stage, (std::vector<std::int64_t>{4, 3}));
}

}  // namespace
}  // namespace spillway::app
