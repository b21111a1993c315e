#include "metrics/report.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "metrics/hash.hpp"
#include "metrics/report_csv.hpp"
#include "metrics/report_json.hpp"
#include "metrics/report_text.hpp"
#include "sample.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

Json json_of(const Report& report) { return to_json(report, evaluate(report)); }
std::string text_of(const Report& report) { return report_text(report, evaluate(report)); }
std::string line_of(const Report& report, std::size_t run) {
  return figure_line(report, report.runs[run], evaluate(report)[run]);
}

PolicyRun infeasible() {
  PolicyRun run;
  run.policy = "keep";
  run.infeasible = "rank 3 needs 300 MiB, its cap is 200 MiB";
  return run;
}

/// Exit status of the validator on a result written to a temporary file; what it printed goes to `output`.
int validate(const Json& json, std::string& output) {
  const auto folder = std::filesystem::temp_directory_path() / ("spillway_schema_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "result.json") << json.dump(1);
  const std::string command = "/usr/bin/python3 " SPILLWAY_SOURCE_DIR "/tests/cli/validate_result.py " +
                              (folder / "result.json").string() + " > " + (folder / "out").string() + " 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream text;
  text << std::ifstream(folder / "out").rdbuf();
  output = text.str();
  std::filesystem::remove_all(folder);
  return WEXITSTATUS(status);
}

TEST(Json, HoldsTheFiguresAndNullsWhereNothingApplies) {
  const Json json = json_of(sample::report());
  EXPECT_EQ(json["valid"], true);
  EXPECT_EQ(json["clock"], "virtual");
  EXPECT_EQ(json["workload_checksum"], "00000000deadbeef");
  const Json& run = json["runs"][1];
  EXPECT_EQ(run["fom"]["tokens_per_second"], 300 / 30.25);
  EXPECT_EQ(run["summary"]["oom_events"], 1);
  EXPECT_EQ(run["summary"]["oracle"], "run");
  EXPECT_EQ(run["summary"]["lost_seconds"]["cold_start"], 20.0);
  EXPECT_EQ(run["ranks"][1]["oom_events"], 1);
  EXPECT_EQ(run["ranks"][1]["peak_bytes"]["activation_moe"], 0);
  for (const char* later : {"plan_cache_hit_rate", "migration_bytes", "distinct_nodes_per_token", "ochiai_mean",
                            "peak_host_bytes", "reserved_bytes", "loss_first", "loss_last"}) {
    ASSERT_TRUE(run["summary"].contains(later)) << later;
    EXPECT_TRUE(run["summary"][later].is_null()) << later;
  }
}

TEST(Json, TellsEveryIterationAsItWasRun) {
  Report report = sample::report();
  report.runs[1].iterations[2].gradient_checksum = 0xFEu;
  const Json iterations = json_of(report)["runs"][1]["iterations"];
  ASSERT_EQ(iterations.size(), 4u);
  EXPECT_EQ(iterations[0]["event"], "none");
  EXPECT_EQ(iterations[1]["event"], "oom");
  EXPECT_EQ(iterations[1]["oom"], (Json{{"rank", 1}, {"seconds", 1.5}, {"operator", "fc1"}}));
  EXPECT_EQ(iterations[2]["event"], "restart");
  EXPECT_EQ(iterations[2]["policy"], "full");
  EXPECT_EQ(iterations[2]["gradient_checksum"], "00000000000000fe");
  EXPECT_TRUE(iterations[1]["gradient_checksum"].is_null());
}

TEST(Json, ByteSumsStayIntegersUntil64BitsEnd) {
  Report report = sample::report();
  for (RankRecord& rank : report.runs[0].ranks) {
    rank.iterations[0].cross_node_bytes = Bytes(4'000'000'000'000'000'000);
    rank.iterations[0].intra_node_bytes = Bytes(8'000'000'000'000'000'000);
  }
  const Json summary = json_of(report)["runs"][0]["summary"];
  EXPECT_EQ(summary["cross_node_bytes"].dump(), "8000000000000000000");
  EXPECT_EQ(summary["intra_node_bytes"], 1.6e19);
}

TEST(Report, OneFaultTakesEveryFigureOfMerit) {
  Report report = sample::report();
  report.runs[1].reasons = {"token conservation broken in iteration 2"};
  const Json json = json_of(report);
  EXPECT_EQ(json["valid"], false);
  EXPECT_EQ(json["reasons"][0], "policy selective: token conservation broken in iteration 2");
  EXPECT_TRUE(json["runs"][0]["fom"].is_null());
  EXPECT_TRUE(json["runs"][0]["summary"]["mfu_causal"].is_null());
  EXPECT_EQ(json["runs"][0]["valid"], true);
  EXPECT_EQ(json["runs"][1]["valid"], false);
}

TEST(Report, InfeasiblePolicyIsListedWithItsArithmeticAndIsNoFault) {
  Report report = sample::report();
  report.runs.push_back(infeasible());
  const Json json = json_of(report);
  EXPECT_EQ(json["valid"], true);
  EXPECT_TRUE(json["runs"][2]["fom"].is_null());
  EXPECT_TRUE(json["runs"][2]["valid"].is_null());
  EXPECT_EQ(json["runs"][2]["infeasible"], "rank 3 needs 300 MiB, its cap is 200 MiB");
  EXPECT_TRUE(json["runs"][2]["summary"]["restarts"].is_null());
  EXPECT_EQ(line_of(report, 2),
            "INFEASIBLE case=demo policy=keep hash=ab12cd34 reason: rank 3 needs 300 MiB, its cap is 200 MiB");
}

TEST(Report, ProjectedOracleStandsInForOneThatCannotRun) {
  Report report = sample::report();
  report.projected_oracle = report.runs[0];
  report.runs[0] = infeasible();
  report.runs[0].policy = "oracle";
  EXPECT_EQ(json_of(report)["runs"][1]["summary"]["oracle"], "projected");
  report.projected_oracle.reset();
  const Json summary = json_of(report)["runs"][1]["summary"];
  EXPECT_TRUE(summary["oracle"].is_null());
  EXPECT_EQ(summary["oracle_reason"], "oracle is infeasible: rank 3 needs 300 MiB, its cap is 200 MiB");
}

TEST(Schema, AcceptsValidInvalidInfeasibleAndEmptyReports) {
  std::string output;
  Report report = sample::report();
  report.runs[1].iterations[2].gradient_checksum = 1;
  report.runs[1].iterations[0].loss = 3.5;
  report.runs.push_back(infeasible());
  EXPECT_EQ(validate(json_of(report), output), 0) << output;
  report.reasons = {"the verification phase failed"};
  EXPECT_EQ(validate(json_of(report), output), 0) << output;
  Report empty = sample::report();
  empty.runs.clear();
  EXPECT_EQ(validate(json_of(empty), output), 0) << output;
}

TEST(Schema, RefusesMissingUnknownAndContradictingFieldsAndNamesThem) {
  const Json good = json_of(sample::report());
  std::string output;
  Json bad = good;
  bad["runs"][1]["summary"].erase("migration_bytes");
  EXPECT_EQ(validate(bad, output), 1);
  EXPECT_THAT(output, HasSubstr("/runs/1/summary: 'migration_bytes' is a required property"));
  bad = good;
  bad["runs"][0]["ranks"][1]["speed"] = 3;
  EXPECT_EQ(validate(bad, output), 1);
  EXPECT_THAT(output, HasSubstr("/runs/0/ranks/1: "));
  bad = good;
  bad["runs"][0]["ranks"][0]["oom_events"] = "none";
  EXPECT_EQ(validate(bad, output), 1);
  EXPECT_THAT(output, HasSubstr("/runs/0/ranks/0/oom_events: "));
  bad = good;
  bad["valid"] = false;
  bad["reasons"] = {"a fault"};
  EXPECT_EQ(validate(bad, output), 1);
  EXPECT_THAT(output, HasSubstr("/runs/0/fom: ")) << "an invalid report must not carry a figure of merit";
}

TEST(FigureLine, HasTheStableForm) {
  Report report = sample::report();
  EXPECT_EQ(line_of(report, 1),
            "PROJECTED case=demo policy=selective tokens_per_second=9.9174 effective_mfu=0.01983 "
            "provisioning_efficiency=0.198 hash=ab12cd34 status=VALID");
  report.virtual_clock = false;
  report.facts.tokens_per_iteration = 81912;
  report.facts.peak_flops = 48000;
  EXPECT_EQ(line_of(report, 1),
            "FOM case=demo policy=selective tokens_per_second=8123.5 effective_mfu=0.3385 "
            "provisioning_efficiency=0.198 hash=ab12cd34 status=VALID");
  report.case_name = "two words";
  EXPECT_THAT(line_of(report, 1), HasSubstr("case=two_words policy"));
}

TEST(FigureLine, OfAnInvalidReportHasNoNumber) {
  Report report = sample::report();
  report.virtual_clock = false;
  report.reasons = {"gradients differ"};
  EXPECT_EQ(line_of(report, 0),
            "FOM case=demo policy=oracle tokens_per_second=null effective_mfu=null provisioning_efficiency=null "
            "hash=ab12cd34 status=INVALID");
}

TEST(Text, EndsWithTheVerdictAndOneReasonALine) {
  Report report = sample::report();
  EXPECT_TRUE(text_of(report).ends_with("status=VALID\nVALID\n"));
  report.reasons = {"gradients differ"};
  report.runs[0].reasons = {"loss is not finite"};
  EXPECT_TRUE(text_of(report).ends_with("INVALID\n  gradients differ\n  policy oracle: loss is not finite\n"));
}

TEST(Text, OfAVirtualClockNeverLooksLikeAMeasurement) {
  Report report = sample::report();
  EXPECT_THAT(text_of(report), HasSubstr("virtual clock: seconds computed from machine file mini, not measured\n"));
  EXPECT_THAT(text_of(report), Not(HasSubstr("FOM ")));
  report.virtual_clock = false;
  EXPECT_THAT(text_of(report), HasSubstr("wall clock: seconds measured\n"));
  EXPECT_THAT(text_of(report), Not(HasSubstr("PROJECTED")));
}

TEST(Text, TablesEveryPolicy) {
  Report report = sample::report();
  report.runs[1].ranks[1].peak.total = Bytes(3 << 19);
  report.runs.push_back(infeasible());
  const std::string text = text_of(report);
  EXPECT_THAT(text,
              HasSubstr("selective        9.9174   0.01983       0.198         1.5      1         2         2.425\n"));
  EXPECT_THAT(text, HasSubstr("keep       infeasible: rank 3 needs 300 MiB"));
}

TEST(Text, NamesThePolicyWhoseSecondsWerePredictedWorst) {
  Report report = sample::report();
  EXPECT_THAT(text_of(report), Not(HasSubstr("prediction")));
  for (PolicyRun& run : report.runs) {
    const bool worst = run.policy == "selective";
    for (RankRecord& rank : run.ranks) rank.predicted = PredictedSeconds{Seconds(worst ? 3 : 5), Seconds(4)};
  }
  report.virtual_clock = false;
  EXPECT_THAT(text_of(report),
              HasSubstr(
                  "prediction, worst policy oracle: 5 s per iteration by the machine file, 4 s measured (+25.0 %)"));
  for (RankRecord& rank : report.runs[1].ranks) rank.predicted = PredictedSeconds{Seconds(2), Seconds(4)};
  EXPECT_THAT(text_of(report),
              HasSubstr("worst policy selective: 2 s per iteration by the machine file, 4 s measured (-50.0 %); peak"));
}

TEST(Csv, HasOneRowPerPolicyAndIterationWithAsManyCellsAsTheHeader) {
  const std::string text = iterations_csv(sample::report());
  std::istringstream lines(text);
  std::string line;
  std::vector<std::string> rows;
  while (std::getline(lines, line)) rows.push_back(line);
  ASSERT_EQ(rows.size(), 1u + 3 + 4);
  for (const std::string& row : rows) {
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), std::count(rows[0].begin(), rows[0].end(), ',')) << row;
  }
  EXPECT_EQ(rows[5], "demo,ab12cd34,virtual,real,selective,1,1,oom,selective,0,1.75,1,1,0,0,,1,1.5,fc1,,");
}

TEST(Csv, PerRankHasOneRowPerPolicyIterationAndRank) {
  const std::string text = rank_iterations_csv(sample::report());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + (3 + 4) * 2);
  EXPECT_THAT(text,
              HasSubstr("\ndemo,ab12cd34,virtual,real,selective,0,0,none,1,0,1,0,0,0,0,0,0,0,0,0,0,40,0,0,0,0\n"));
}

TEST(Csv, QuotesCellsThatHoldSeparatorsQuotesOrLineEnds) {
  Report report = sample::report();
  report.case_name = "a,\"b\"";
  report.runs[1].iterations[1].oom->operator_name = "line\nend";
  const std::string text = iterations_csv(report);
  EXPECT_THAT(text, HasSubstr("\n\"a,\"\"b\"\"\",ab12cd34,"));
  EXPECT_THAT(text, HasSubstr(",\"line\nend\","));
}

TEST(Hash, IsEightHexDigitsStableAndSensitive) {
  // FNV-1a(64) of "a" is af63dc4c8601ec8c (published test vector), folded: af63dc4c ^ 8601ec8c.
  EXPECT_EQ(result_hash("a"), "296230c0");
  EXPECT_EQ(result_hash(""), "4fd0bfc1") << "cbf29ce4 ^ 84222325";
  EXPECT_NE(result_hash("{\"seed\":1}"), result_hash("{\"seed\":2}"));
}

TEST(Json, LossThatIsNotFiniteIsNull) {
  Report report = sample::report();
  report.runs[1].iterations[0].loss = std::numeric_limits<double>::quiet_NaN();
  report.runs[1].reasons = {"loss of iteration 0 is not finite"};
  std::string output;
  EXPECT_EQ(validate(json_of(report), output), 0) << output;
}

}  // namespace
}  // namespace spillway
