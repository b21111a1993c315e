// The writer of timelines: a file built by hand reads back as the events it was made from.
#include "metrics/timeline.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::json;

/// A rank that computes for 2 us, sends, offloads a tensor, and receives.
RankTimeline sample_rank() {
  RankTimeline r;
  r.rank = 3;
  r.place = "stage 1, \"data\" 0";
  r.spans = {
      {TimelineLane::compute, {"fc1", {}, WorkKind::forward, 5, 7, -1}, Seconds(1e-6), Seconds(3e-6)},
      {TimelineLane::network, {"send", "block_output", WorkKind::pipeline, 5, 7}, Seconds(3e-6), Seconds(4e-6)},
      {TimelineLane::copy_out, {"offload", "fc1_input", WorkKind::mitigation, 5, 7}, Seconds(3e-6), Seconds(9e-6)}};
  r.messages = {{41, true, TimelineLane::network, Seconds(3e-6)}, {17, false, TimelineLane::compute, Seconds(1e-6)}};
  MemorySample empty{Seconds(0), {}, Bytes(0)}, held{Seconds(1e-6), {}, Bytes(0)}, gone{Seconds(3e-6), {}, Bytes(64)};
  held.device[static_cast<std::size_t>(Category::activation_moe)] = Bytes(std::int64_t{1} << 40);
  r.memory = {empty, held, gone};
  r.iterations = {{8, Seconds(0), Seconds(1e-5), "full", 1.25, true}};
  return r;
}

TimelineHeader sample_header() { return {"demo", "full", "mini", "68341d5a", "0.1.0", {8}, 2, Bytes(4096), true}; }

Json file_of(const std::vector<RankTimeline>& ranks) {
  std::string text = timeline_head(sample_header());
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ",\n" : "") + timeline_events(ranks[i], true);
  return Json::parse(text + timeline_tail());
}

/// Events of one phase.
std::vector<Json> events(const Json& file, const std::string& phase) {
  std::vector<Json> list;
  for (const Json& event : file.at("traceEvents"))
    if (event.at("ph") == phase) list.push_back(event);
  return list;
}

TEST(Timeline, SaysWhatItIsAboutAndThatAVirtualClockMeasuresNothing) {
  const Json about = file_of({sample_rank()}).at("otherData");
  EXPECT_EQ(about.at("case"), "demo");
  EXPECT_EQ(about.at("policy"), "full");
  EXPECT_EQ(about.at("iterations"), Json({8}));
  EXPECT_EQ(about.at("clock"), "virtual");
  EXPECT_EQ(about.at("times"), "computed from machine file mini, not measured");
  EXPECT_EQ(about.at("memory_cap_bytes"), 4096);
  EXPECT_EQ(about.at("hash"), "68341d5a");
  TimelineHeader wall = sample_header();
  wall.virtual_clock = false;
  EXPECT_EQ(Json::parse(timeline_head(wall) + "]}").at("otherData").at("times"), "measured");
}

TEST(Timeline, NamesAProcessPerRankAndATrackPerLane) {
  RankTimeline other = sample_rank();
  other.rank = 4;
  std::map<std::pair<int, int>, std::string> names;
  for (const Json& e : events(file_of({sample_rank(), other}), "M"))
    if (e.at("args").contains("name")) names[{e.at("pid"), e.value("tid", 0)}] = e.at("args").at("name");
  EXPECT_EQ(names.size(), 10u);
  EXPECT_EQ((names[{3, 0}]), "rank 3: stage 1, \"data\" 0");
  EXPECT_EQ((names[{4, 1}]), "compute");
  EXPECT_EQ((names[{4, 2}]), "network");
  EXPECT_EQ((names[{3, 3}]), "copy-out");
  EXPECT_EQ((names[{3, 4}]), "copy-in");
}

TEST(Timeline, SpansHaveMicrosecondsLaneNameAndBlock) {
  const auto spans = events(file_of({sample_rank()}), "X");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0], Json::parse(R"({"ph": "X", "name": "fc1", "cat": "forward", "ts": 1.0, "dur": 2.0, "pid": 3,
                                      "tid": 1, "args": {"micro_batch": 5, "layer": 7}})"));
  EXPECT_EQ(spans[1].at("name"), "send block_output");
  EXPECT_EQ(spans[1].at("tid"), 2);
  EXPECT_EQ(spans[2].at("name"), "offload fc1_input");
  EXPECT_EQ(spans[2].at("cat"), "mitigation");
  EXPECT_EQ(spans[2].at("dur"), 6.0);
}

TEST(Timeline, TitlesTellPassesApart) {
  EXPECT_EQ(title({"fc1", {}, WorkKind::forward}), "fc1");
  EXPECT_EQ(title({"fc1", {}, WorkKind::backward}), "fc1 backward");
  EXPECT_EQ(title({"fc1", {}, WorkKind::recompute}), "fc1 recompute");
  EXPECT_EQ(title({"optimizer", {}, WorkKind::gradient_step}), "optimizer");
}

TEST(Timeline, SpansThatTouchStillDoAfterRounding) {
  RankTimeline r;
  const Seconds a(1.0000000004e-3), b(1.0000014996e-3), c(2.7e-3);
  r.spans = {{TimelineLane::compute, {"a"}, a, b}, {TimelineLane::compute, {"b"}, b, c}};
  const auto spans = events(file_of({r}), "X");
  EXPECT_DOUBLE_EQ(spans[0].at("ts").get<double>() + spans[0].at("dur").get<double>(), spans[1].at("ts").get<double>());
  EXPECT_DOUBLE_EQ(spans[1].at("ts").get<double>() + spans[1].at("dur").get<double>(), 2700);
}

TEST(Timeline, ArrowsHaveOneIdAtBothEnds) {
  const Json file = file_of({sample_rank()});
  EXPECT_EQ(events(file, "s"), std::vector<Json>{Json::parse(
                                   R"({"ph": "s", "name": "message", "cat": "message", "id": 41, "ts": 3.0, "pid": 3,
                                       "tid": 2})")});
  EXPECT_EQ(events(file, "f"), std::vector<Json>{Json::parse(
                                   R"({"ph": "f", "name": "message", "cat": "message", "id": 17, "ts": 1.0, "pid": 3,
                                       "tid": 1, "bp": "e"})")});
}

TEST(Timeline, CountersHaveEveryCategoryAndTheHostTierWhereItIsUsed) {
  const auto counters = events(file_of({sample_rank()}), "C");
  ASSERT_EQ(counters.size(), 6u);
  EXPECT_EQ(counters[2].at("name"), "memory (bytes)");
  EXPECT_EQ(counters[2].at("args").size(), category_count);
  EXPECT_EQ(counters[2].at("args").at("activation_moe"), std::int64_t{1} << 40);
  EXPECT_EQ(counters[5].at("name"), "host tier (bytes)");
  EXPECT_EQ(counters[5].at("args").at("offloaded"), 64);
  RankTimeline none = sample_rank();
  none.memory.pop_back();
  EXPECT_EQ(events(file_of({none}), "C").size(), 2u);
}

TEST(Timeline, IterationsAreMarkedOnceForAllRanks) {
  RankTimeline first = sample_rank();
  first.rank = 0;
  const auto marks = events(file_of({first, sample_rank()}), "i");
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].at("s"), "g");
  EXPECT_EQ(marks[0].at("name"), "iteration 8 under full");
  EXPECT_EQ(marks[0].at("args").at("out_of_memory"), true);
}

}  // namespace
}  // namespace spillway
