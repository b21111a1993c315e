// Which of several values of one option wins, and what becomes of options that do not exist.
#include "support.hpp"

namespace spillway::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Precedence, DefaultsThenModelAndMachineFileThenCaseFileThenCommandLine) {
  InputTree inputs;
  EXPECT_EQ(inputs.read().model.hidden_size, 32);  // the model file overrides the default
  EXPECT_EQ(inputs.read().machine.peak_flops, 5e9);
  EXPECT_EQ(inputs.read().model.num_hidden_layers, ModelShape{}.num_hidden_layers);
  inputs.write("runs/case.toml",
               "[model]\nname = \"small\"\nhidden_size = 48\n[machine]\nname = \"box\"\npeak_flops = 6e9\n");
  EXPECT_EQ(inputs.read().model.hidden_size, 48);
  EXPECT_EQ(inputs.read().model.num_experts, 4);  // still from the file
  EXPECT_EQ(inputs.read().machine.peak_flops, 6e9);
  EXPECT_EQ(inputs.read({"model.hidden_size=64"}).model.hidden_size, 64);
}

TEST(Precedence, TheLastOfEqualKeysOnTheCommandLineWins) {
  InputTree inputs;
  EXPECT_EQ(inputs.read({"training.iterations=5", "training.iterations=7"}).training.iterations, 7);
}

// Reported elsewhere: a value in the file was ignored because command-line precedence was inverted.
TEST(Reports5, ValueInTheFileHoldsUnlessTheCommandLineOverridesIt) {
  InputTree inputs;
  inputs.write_case("[training]\niterations = 12\nmicro_batches = 3\n");
  const Case c = inputs.read({"training.iterations=20"});
  EXPECT_EQ(c.training.iterations, 20);
  EXPECT_EQ(c.training.micro_batches, 3);
}

TEST(Reports5, UnknownKeyInACaseFileIsRefusedWithFileLineAndNearest) {
  InputTree inputs;
  inputs.write_case("[training]\nsequence_lenght = 12\n");
  EXPECT_THAT(inputs.error(), AllOf(HasSubstr("case.toml:4"), HasSubstr("training.sequence_lenght"),
                                    HasSubstr("did you mean training.sequence_length?")));
}

TEST(Reports5, UnknownKeyOnTheCommandLineInAModelFileAndInAMachineFileIsRefused) {
  InputTree inputs;
  EXPECT_THAT(inputs.error({"routing.peek=2"}), HasSubstr("did you mean routing.peak?"));
  inputs.write("models/small.toml", "hidden_sizes = 32\n");
  EXPECT_THAT(inputs.error(), AllOf(HasSubstr("small.toml:1"), HasSubstr("did you mean model.hidden_size?")));
  inputs.write("models/small.toml", "hidden_size = 32\n");
  inputs.write("machines/box.toml", "\npeak_flop = 1e9\n");
  EXPECT_THAT(inputs.error(), AllOf(HasSubstr("box.toml:2"), HasSubstr("did you mean machine.peak_flops?")));
}

TEST(Reports5, KeyInTheWrongSectionIsSuggestedInItsOwn) {
  InputTree inputs;
  inputs.write_case("[training]\nhidden_size = 12\n");
  EXPECT_THAT(inputs.error(), HasSubstr("did you mean model.hidden_size?"));
}

TEST(Reports5, UnknownEmptySectionIsRefusedAndAKnownOneIsNot) {
  InputTree inputs;
  inputs.write_case("[routing]\n[trainings]\n");
  EXPECT_THAT(inputs.error(), HasSubstr("unknown option trainings"));
  inputs.write_case("[routing]\n");
  EXPECT_NO_THROW(inputs.read());
}

TEST(CaseFiles, ModelIsFoundByNameByPathAndFromTheCommandLine) {
  InputTree inputs;
  inputs.write("models/other.toml", "hidden_size = 40\n");
  inputs.write("runs/mine.toml", "hidden_size = 56\n");
  EXPECT_EQ(inputs.read({"model=other"}).model.hidden_size, 40);
  EXPECT_EQ(inputs.read({"model.name=mine.toml"}).model.hidden_size, 56);  // beside the case file
  EXPECT_EQ(inputs.read({"model=" + (inputs.root() / "models/other.toml").string()}).model.hidden_size, 40);
}

TEST(CaseFiles, MissingModelNamesThePlaceAndTheNearest) {
  InputTree inputs;
  EXPECT_THAT(inputs.error({"model=smal"}), AllOf(HasSubstr("models/smal.toml"), HasSubstr("did you mean \"small\"?")));
  EXPECT_THAT(inputs.error({"model=../models/small"}), HasSubstr("or a path ending in .toml"));
}

TEST(CaseFiles, CaseWithoutModelOrMachineIsRefused) {
  InputTree inputs;
  inputs.write("runs/case.toml", "machine = \"box\"\n");
  EXPECT_THAT(inputs.error(), HasSubstr("add model = \"NAME\""));
  inputs.write("runs/case.toml", "model = \"small\"\n");
  EXPECT_THAT(inputs.error(), HasSubstr("add machine = \"NAME\""));
}

TEST(CaseFiles, FileThatIsNotThereNotAFileOrNotTomlIsOneClearError) {
  InputTree inputs;
  EXPECT_THAT(input_error_of([&] { read_case({inputs.root() / "runs/none.toml", {}}); }), HasSubstr("none.toml"));
  EXPECT_THAT(input_error_of([&] { read_case({inputs.root() / "runs", {}}); }), HasSubstr("cannot read"));
  inputs.write_case("iterations = = 3\n");
  EXPECT_THAT(inputs.error(), AllOf(HasSubstr("case.toml:3"), HasSubstr("iterations = = 3")));
}

TEST(CaseFiles, TraceIsLookedUpInTheFolderOfTraces) {
  InputTree inputs;
  inputs.write("traces/loads.csv", "x\n");
  inputs.write_case("[routing]\ntrace = \"loads.csv\"\n");
  EXPECT_EQ(inputs.read().routing.trace, (inputs.root() / "traces/loads.csv").string());
  EXPECT_THAT(inputs.error({"routing.trace=load.csv"}), HasSubstr("routing.trace = \"load.csv\""));
}

TEST(CaseFiles, NameIsTheFilesUnlessGiven) {
  InputTree inputs;
  EXPECT_EQ(inputs.read().name, "case");
  EXPECT_EQ(inputs.read({"name=2024"}).name, "2024");  // text needs no quotes on the command line
  EXPECT_EQ(inputs.read().model_name, "small");
}

TEST(CaseFiles, SettingWithoutEqualsSignIsRefused) {
  InputTree inputs;
  EXPECT_THAT(inputs.error({"training.iterations"}), HasSubstr("expected key=value"));
}

}  // namespace
}  // namespace spillway::app
