// What a rank records, moment by moment, and the names that Kokkos Tools see beside it.
#include "run/timeline_recorder.hpp"

#include <gmock/gmock.h>

#include <Kokkos_Core.hpp>

#include "run/work_scope.hpp"

namespace spillway {
namespace {

using ::testing::ElementsAre;

device::Interval interval(double start, double end) { return {Seconds(start), Seconds(end)}; }
WorkLabel of_block(std::string_view name, int micro_batch, int layer) {
  return {name, {}, WorkKind::forward, micro_batch, layer};
}

class Recorder : public ::testing::Test {
 protected:
  void begin() { recorder.begin(ledger, nullptr); }
  void end(double seconds, bool lost = false) {
    IterationRecord record;
    record.index = 4;
    record.seconds = Seconds(seconds);
    if (lost) record.oom = OutOfMemory{};
    recorder.end(record);
  }
  void send(std::int64_t number, device::Interval ran) {
    const device::Event event = device::Event::at(ran);
    recorder.issued(TimelineLane::network, event);
    recorder.sent(number, event);
  }
  ByteLedger ledger{Bytes(1)};
  TimelineRecorder recorder{{"full", {4, 6}}};
  const RankTimeline& timeline = recorder.timeline();
};

TEST_F(Recorder, KeepsOnlyWhatWasAskedFor) {
  EXPECT_TRUE(recorder.wants("full", 4));
  EXPECT_TRUE(recorder.wants("full", 6));
  EXPECT_FALSE(recorder.wants("full", 5));
  EXPECT_FALSE(recorder.wants("keep", 4));
  recorder.choose(5);
  EXPECT_FALSE(recorder.wants("full", 5)) << "iterations that were named stay";
  TimelineRecorder open({"full", {}});
  open.choose(5);
  EXPECT_TRUE(open.wants("full", 5));
}

TEST_F(Recorder, AMessageEndsWhereItsBlockFirstComputesAfterItsArrival) {
  begin();
  recorder.label(of_block("receive", 2, 8), Seconds(0));
  recorder.received(77, Seconds(3));
  recorder.label(of_block("fc1", 1, 8), Seconds(0));
  recorder.computed(interval(3, 4));  // another micro-batch
  recorder.label(of_block("recomputed", 2, 8), Seconds(0));
  recorder.computed(interval(2, 3));  // does not need it
  recorder.issued(TimelineLane::network, device::Event::at(interval(3, 4)));
  recorder.computed(interval(5, 6));
  recorder.computed(interval(6, 7));
  end(8);
  ASSERT_EQ(timeline.messages.size(), 1u);
  EXPECT_EQ(timeline.messages[0].at, Seconds(5));
  EXPECT_FALSE(timeline.messages[0].sent);
}

TEST_F(Recorder, AMessageLeavesWhenTheNetworkTakesIt) {
  begin();
  send(77, interval(1, 2));
  end(3);
  EXPECT_TRUE(timeline.messages.at(0).sent);
  EXPECT_EQ(timeline.messages[0].at, Seconds(1));
  EXPECT_EQ(timeline.messages[0].lane, TimelineLane::network);
}

TEST_F(Recorder, ALostIterationDrainsToItsEndAndTakesTheMessagesItStillGets) {
  begin();
  recorder.label(of_block("receive", 0, 0), Seconds(0));
  recorder.received(1, Seconds(1));
  recorder.drain(Seconds(2));
  recorder.drain(Seconds(3));
  recorder.received(2, Seconds(4));
  end(6, true);
  ASSERT_EQ(timeline.spans.size(), 1u);
  EXPECT_EQ(timeline.spans[0].label.name, "draining");
  EXPECT_EQ(timeline.spans[0].begin, Seconds(2));
  EXPECT_EQ(timeline.spans[0].end, Seconds(6));
  ASSERT_EQ(timeline.messages.size(), 2u);
  EXPECT_EQ(timeline.messages[0].at, Seconds(2));
  EXPECT_EQ(timeline.messages[1].at, Seconds(4));
  EXPECT_TRUE(timeline.iterations.at(0).lost);
}

TEST_F(Recorder, AttemptsFollowEachOtherWithMessagesOfTheirOwn) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    begin();
    send(77, interval(1, 2));
    end(10);
  }
  EXPECT_EQ(timeline.spans.at(1).begin, Seconds(11));
  EXPECT_EQ(timeline.iterations.at(1).begin, Seconds(10));
  EXPECT_NE(timeline.messages.at(0).id, timeline.messages.at(1).id);
}

TEST_F(Recorder, ARankThatBeganLateIsMovedBack) {
  begin();
  send(77, interval(1, 2));
  IterationRecord record;
  record.seconds = Seconds(10);
  recorder.end(record, {Seconds(0.5), Seconds(2)});
  EXPECT_EQ(timeline.spans.at(0).end, Seconds(2.5));
  EXPECT_EQ(timeline.messages.at(0).at, Seconds(1.5));
  begin();
  send(78, interval(1, 2));
  end(10);
  EXPECT_EQ(timeline.spans.at(1).begin, Seconds(13)) << "after the latest rank's end";
}

TEST_F(Recorder, MemoryIsNotedWhereItChangesAndNeverGoesBackInTime) {
  begin();
  ledger.add(Category::activation_moe, Bytes(100));
  recorder.sample(Seconds(5));
  recorder.sample(Seconds(6));
  ledger.remove(Category::activation_moe, Bytes(40));
  recorder.sample(Seconds(4));
  end(9);
  std::vector<std::pair<double, std::int64_t>> samples;
  for (const MemorySample& s : timeline.memory)
    samples.emplace_back(s.at.value, s.device[static_cast<std::size_t>(Category::activation_moe)].value);
  EXPECT_THAT(samples, ElementsAre(std::pair(0.0, 0), std::pair(5.0, 100), std::pair(5.0, 60)));
}

std::vector<std::string>* regions = nullptr;

TEST(WorkScope, KokkosToolsSeeTheTimelinesNames) {
  std::vector<std::string> seen;
  regions = &seen;
  Kokkos::Tools::Experimental::set_push_region_callback([](const char* name) { regions->emplace_back(name); });
  Kokkos::Tools::Experimental::set_pop_region_callback([] { regions->emplace_back("end"); });
  device::Clock clock(nullptr);
  device::Stream stream;
  LaneTimer timer(clock, stream);
  TimelineRecorder recorder({"full", {0}});
  const ByteLedger ledger;
  recorder.begin(ledger, nullptr);
  timer.record(&recorder);
  Instruction fc1, offload;
  fc1.op = Op::fc1;
  fc1.recompute = true;
  offload.action = Action::offload;
  offload.subject = Tensor::fc1_input;
  for (const Instruction& i : {fc1, offload}) {
    const WorkScope scope(timer, work_label(i, 3, {BlockKind::moe, 7, {}}));
    timer.compute(Seconds(0), [] {});
  }
  Kokkos::Tools::Experimental::set_push_region_callback(nullptr);
  Kokkos::Tools::Experimental::set_pop_region_callback(nullptr);
  EXPECT_THAT(seen, ElementsAre("fc1 recompute", "end", "offload fc1_input", "end"));
  std::vector<std::string> spans;
  for (const TimelineSpan& span : recorder.timeline().spans) spans.push_back(title(span.label));
  EXPECT_THAT(spans, ElementsAre("fc1 recompute", "offload fc1_input"));
  EXPECT_EQ(recorder.timeline().spans[0].label.layer, 7);
  EXPECT_EQ(recorder.timeline().spans[0].label.micro_batch, 3);
}

}  // namespace
}  // namespace spillway
