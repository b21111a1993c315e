#include "workload/routing/trace.hpp"

#include <gmock/gmock.h>

#include "routing_fixtures.hpp"

namespace spillway {
namespace {

using namespace routing_test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string header = "iteration,layer,rank,tokens\n";
const std::string recorded = std::string(SPILLWAY_SOURCE_DIR) + "/inputs/traces/mixtral_e16k4_rank_tokens.csv";

RoutingOptions trace_options(const std::string& file) {
  RoutingOptions options = preset_options("trace");
  options.trace = file;
  return options;
}

TEST(TraceFile, ranks_of_equal_r_mod_4_are_summed) {
  const Trace trace =
      parse_trace(header + "0,0,0,1\n0,0,1,2\n0,0,2,3\n0,0,3,4\n0,0,4,10\n0,0,5,20\n0,0,6,30\n0,0,7,40\n", "t");
  EXPECT_EQ(trace.iterations, 1);
  EXPECT_EQ(trace.layers, 1);
  EXPECT_THAT(trace.at(0, 0), ElementsAre(11, 22, 33, 44));
}

TEST(TraceFile, lines_may_come_in_any_order_and_with_carriage_returns) {
  const Trace trace = parse_trace("iteration,layer,rank,tokens\r\n0,0,3,4\r\n0,0,1,2\r\n0,0,0,1\r\n0,0,2,3", "t");
  EXPECT_THAT(trace.at(0, 0), ElementsAre(1, 2, 3, 4));
}

TEST(TraceFile, the_recording_has_30_iterations_and_24_layers) {
  const Trace trace = read_trace(recorded);
  EXPECT_EQ(trace.iterations, 30);
  EXPECT_EQ(trace.layers, 24);
  EXPECT_THAT(trace.at(0, 0), ElementsAre(640620, 510273, 576308, 369951));  // summed from the file with a calculator
}

TEST(TraceRouting, rows_follow_the_blocks_by_largest_remainder_and_wrap_around) {
  const RoutingProblem problem{16, 4, 30, 128, 8};
  const auto source = make_routing_source(trace_options(recorded), problem);
  // 512 rows of 2,097,152 tokens are 1 in 4096: 156.401, 124.578, 140.700, 90.320 -> 156, 125, 141, 90.
  const auto rows = rows_of(*source, problem, {0, 0, 3});
  const std::vector<std::int64_t> wide(rows.begin(), rows.end());
  EXPECT_THAT(per_rank(wide, 4), ElementsAre(156, 125, 141, 90));
  for (int b = 0; b < 4; ++b) {
    const auto [least, most] = std::minmax_element(rows.begin() + 4 * b, rows.begin() + 4 * b + 4);
    EXPECT_LE(*most - *least, 1);
  }
  EXPECT_EQ(rows_of(*source, problem, {30, 24, 3}), rows);
  EXPECT_NE(rows_of(*source, problem, {1, 0, 3}), rows);
  EXPECT_FALSE(source->in_burst(0));
}

TEST(TraceRouting, experts_that_do_not_fold_are_refused) {
  RoutingOptions options = trace_options(recorded);
  options.reference_ranks = 2;
  EXPECT_THAT(refusal([&] { make_routing_source(options, {18, 4, 1, 64, 8}); }), HasSubstr("multiple of 4"));
}

TEST(TraceRouting, a_block_beyond_k_distinct_experts_is_refused_with_the_arithmetic) {
  // One expert per block and top-4: every block gets exactly a quarter, which the recording does not.
  EXPECT_THAT(refusal([&] {
                make_routing_source(trace_options(recorded), {4, 4, 1, 64, 8});
              }),
              AllOf(HasSubstr("of 2097152 rows"), HasSubstr("at most 1/4 fit")));
}

TEST(TraceFile, faults_are_one_clear_error_with_file_and_line) {
  const auto fault = [](const std::string& text) { return refusal([&] { parse_trace(text, "loads.csv"); }); };
  const std::string good = "0,0,0,1\n0,0,1,2\n0,0,2,3\n";
  EXPECT_THAT(fault(""), HasSubstr("loads.csv:1: the file is empty"));
  EXPECT_THAT(fault("iteration,rank,tokens\n"), HasSubstr("loads.csv:1: the header is"));
  EXPECT_THAT(fault(header), HasSubstr("loads.csv:1: no loads"));
  EXPECT_THAT(fault(header + good + "0,0,3,4\n0,0,2,9\n"),
              AllOf(HasSubstr("loads.csv:6:"), HasSubstr("first given on line 4")));
  EXPECT_THAT(fault(header + good), AllOf(HasSubstr("loads.csv:4:"), HasSubstr("3 ranks are no multiple of 4")));
  for (const char* bad :
       {"0,0,3", "0,0,3,x", "0,0,3,-1", "0,0,3,4,5", "", "0, 0,3,4", "0,0,3,4.5", "0,0,3,99999999999999999999"}) {
    EXPECT_THAT(fault(header + good + bad + "\n0,0,4,1\n"), HasSubstr("loads.csv:5:")) << bad;
  }
  // Cut off in the middle of a line, and between lines.
  EXPECT_THAT(fault(header + good + "0,0,3,4\n1,0,0,1\n1,0,1"), HasSubstr("loads.csv:7:"));
  EXPECT_THAT(fault(header + good + "0,0,3,4\n1,0,0,1\n1,0,1,2\n"),
              AllOf(HasSubstr("loads.csv:7:"), HasSubstr("before iteration 1, layer 0, rank 2")));
  EXPECT_THAT(fault(header + good + "0,0,3,4\n9000000000,0,0,1\n"), HasSubstr("without iteration 1, layer 0, rank 0"));
  EXPECT_THAT(fault(header + "0,0,0,0\n0,0,1,0\n0,0,2,0\n0,0,3,0\n"),
              AllOf(HasSubstr("loads.csv:5:"), HasSubstr("no tokens")));
}

TEST(TraceFile, a_file_that_cannot_be_read_is_named) {
  EXPECT_THAT(refusal([] { read_trace("/no/such/loads.csv"); }), HasSubstr("'/no/such/loads.csv': cannot be read"));
  EXPECT_THAT(refusal([] { read_trace(SPILLWAY_SOURCE_DIR); }), HasSubstr("cannot be read"));  // a folder
}

}  // namespace
}  // namespace spillway
