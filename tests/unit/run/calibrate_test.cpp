// Calibration: its statistics by hand, its file as text, and its measurements for what does not depend on the clock.
// Runs at any number of ranks.
#include <gmock/gmock.h>
#include <mpi.h>

#include <numeric>
#include <sstream>

#include "base/error.hpp"
#include "run/calibrate_compute.hpp"
#include "run/calibrate_file.hpp"
#include "run/calibrate_network.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

TEST(CalibrateStatistics, MedianAndQuartilesByHand) {
  const SampleSummary five = summarize({50, 10, 30, 20, 40});
  EXPECT_EQ(five.median, 30);
  EXPECT_DOUBLE_EQ(five.spread, (40.0 - 20.0) / 30);
  EXPECT_EQ(five.best, 50);
  EXPECT_EQ(five.count, 5);
  EXPECT_EQ(summarize({1, 2}).median, 1.5);
  EXPECT_EQ(summarize({7}).spread, 0);
  EXPECT_THROW(summarize({}), InternalError);
}

TEST(CalibrateStatistics, OverSizesTheMedianOfMediansAndTheBestOfAll) {
  const SampleSummary parts[] = {summarize({1, 2, 3}), summarize({10, 20, 90}), summarize({4, 5, 6})};
  const SampleSummary all = over_parts(parts);
  EXPECT_EQ(all.median, 5);
  EXPECT_DOUBLE_EQ(all.spread, (12.5 - 3.5) / 5);
  EXPECT_EQ(all.best, 90);
  EXPECT_EQ(all.count, 9);
}

std::vector<MessageTime> line(double latency, double bandwidth, std::initializer_list<std::int64_t> sizes) {
  std::vector<MessageTime> times;
  for (const std::int64_t size : sizes)
    times.push_back({Bytes(size), Seconds(latency + static_cast<double>(size) / bandwidth)});
  return times;
}

TEST(CalibrateStatistics, ALineOfMessageTimesGivesItsLatencyAndBandwidthBack) {
  const MessageFit fit = fit_messages(line(3e-6, 5e9, {1000, 64000, 1'000'000, 16'000'000}));
  EXPECT_NEAR(fit.latency.value, 3e-6, 1e-12);
  EXPECT_NEAR(fit.bandwidth, 5e9, 1);
  EXPECT_NEAR(fit.error, 0, 1e-9);
}

TEST(CalibrateStatistics, AnOddLargeMessageDoesNotDecideTheLatency) {
  std::vector<MessageTime> times = line(3e-6, 5e9, {1000, 4000, 16000, 64000, 256000, 1'000'000, 16'000'000});
  times.back().seconds = times.back().seconds * 1.1;  // 320 us more: plain least squares would find a negative latency
  const MessageFit fit = fit_messages(times);
  EXPECT_NEAR(fit.latency.value, 3e-6, 0.3e-6);
  EXPECT_NEAR(fit.bandwidth, 5e9, 0.1 * 5e9);
  EXPECT_GT(fit.error, 0.03);
}

TEST(CalibrateStatistics, NoiseMakesNeitherLatencyNorBandwidthNegative) {
  const MessageFit fit = fit_messages(line(-1e-6, 5e9, {10'000, 1'000'000}));
  EXPECT_EQ(fit.latency, Seconds(0));
  EXPECT_GT(fit.bandwidth, 5e9);
  const MessageFit falling = fit_messages(line(1, -2e6, {1000, 1'000'000}));  // 1000 bytes 0.9995 s, 1 MB 0.5 s
  EXPECT_EQ(falling.latency, Seconds(0));
  EXPECT_GT(falling.bandwidth, 0);
  EXPECT_GT(falling.error, 0.9);
}

TEST(CalibrateStatistics, ALineNeedsTwoSizes) {
  EXPECT_THROW(fit_messages(line(1e-6, 5e9, {1000, 1000})), InternalError);
  EXPECT_THROW(fit_messages(line(1e-6, 5e9, {1000})), InternalError);
}

TEST(CalibrateStatistics, EqualPartsAtTwoSpeedsTakeTheSumOfTheirTimes) {
  const SampleSummary parts[] = {summarize({30}), summarize({60, 60})};
  EXPECT_DOUBLE_EQ(rate_of_equal_parts(parts), 40);  // there at 30, back at 60
}

TEST(CalibrateStatistics, PassesOfEqualBytesTakeTheSumOfTheirTimes) {
  MemoryRates rates;
  rates.triads = {summarize({30})};
  rates.norms = {summarize({20, 20}), summarize({20})};
  rates.activations = {summarize({5, 15})};
  EXPECT_DOUBLE_EQ(rates.passes(), 3 / (1.0 / 30 + 1.0 / 20 + 1.0 / 10));
  EXPECT_EQ(rates.worst_spread(), 0.5);
}

TEST(MachineFileText, EveryConstantBelowItsSourceInLinesOf120Characters) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += fmt::format("word{} ", i);
  const Calibration c{{"host, 2 ranks"}, {{"peak_flops", "1.1e+11", words}, {"launch", "\"0.3 us\"", "of a kernel"}}};
  const std::string text = machine_file_text(c);
  EXPECT_THAT(text, testing::StartsWith("# host, 2 ranks\n\n# word0 word1"));
  EXPECT_THAT(text, HasSubstr("word59\npeak_flops = 1.1e+11\n\n# of a kernel\nlaunch = \"0.3 us\"\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_EQ(calibration_table({{"host"}, {{"a", "10", "x"}, {"bcd", "2", "y"}}}), "host\n\na    10  x\nbcd   2  y\n");
}

TEST(MachineFileText, NumbersAndTimesAreToml) {
  EXPECT_EQ(toml_number(111234567890.0), "1.112e+11");
  EXPECT_EQ(toml_number(0.86912), "0.8691");
  EXPECT_EQ(toml_microseconds(3.4567e-7), "\"0.3457 us\"");
}

/// Two repetitions of the smallest sizes that still take every path.
CalibrateScale tiny() { return {2, 32, {{16, 8, 2, 4}}, {Bytes(8192)}, Bytes(4 << 20), {Bytes(1024), Bytes(1 << 20)}}; }

TEST(Calibrate, EveryRankAndRepetitionCountsAndTheFirstOfAllDoesNot) {
  const Together together(MPI_COMM_WORLD, 3);
  int runs = 0;
  EXPECT_EQ(std::ssize(together.seconds([&runs] { ++runs; })), 3 * world_size());
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(std::ssize(together.slowest([&runs] { ++runs; })), 3);
  EXPECT_EQ(runs, 8);
}

TEST(Calibrate, ProductsPassesAndLaunchesHaveRates) {
  const CalibrateScale scale = tiny();
  const Together together(MPI_COMM_WORLD, scale.repetitions);
  const ProductRates products = measure_products(together, scale);
  EXPECT_EQ(products.shapes.size(), 12u);  // two products of experts, two projections; three directions
  for (const SampleSummary& s : products.shapes) {
    EXPECT_EQ(s.count, scale.repetitions * world_size());
    EXPECT_GT(s.median, 0);
    EXPECT_LE(s.best, products.best());
  }
  EXPECT_GT(products.attention.median, 0);
  const MemoryRates memory = measure_memory(together, scale);
  for (const auto& rates : {memory.triads, memory.norms, memory.activations, memory.copies}) {
    ASSERT_EQ(rates.size(), scale.passes.size());
    EXPECT_GT(rates[0].median, 0);
  }
  EXPECT_GT(measure_launch(together).median, 0);
  EXPECT_GT(measure_interference(together, scale).median, 0);
}

TEST(Calibrate, RanksOfANodeGiveTheNodesLineAndOtherNodesTheNetworks) {
  const int ranks = world_size();
  const CalibrateScale scale = tiny();
  const MessagePlan plan{scale.messages, scale.repetitions, scale.memory};
  const NetworkRates together = measure_network(MPI_COMM_WORLD, std::vector<int>(ranks, 0), plan);
  EXPECT_EQ(together.node.has_value(), ranks > 1);
  EXPECT_FALSE(together.network);
  std::vector<int> apart(ranks);
  std::iota(apart.begin(), apart.end(), 0);
  const NetworkRates alone = measure_network(MPI_COMM_WORLD, apart, plan);
  EXPECT_FALSE(alone.node);
  EXPECT_EQ(alone.network.has_value(), ranks > 1);
  if (ranks > 2) {  // the first rank alone, the others together
    std::vector<int> mixed(ranks, 1);
    mixed[0] = 0;
    const NetworkRates both = measure_network(MPI_COMM_WORLD, mixed, plan);
    EXPECT_TRUE(both.node && both.network);
  }
}

}  // namespace
}  // namespace spillway
