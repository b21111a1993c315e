// Seconds of work and messages, worked by hand.
#include "plan/cost/time_model.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <vector>

#include "base/error.hpp"

namespace spillway {
namespace {

using testing::HasSubstr;

/// 100 B/s inside a node, 50 B/s between nodes, half a second and two seconds of latency.
MachineProfile slow_machine() {
  MachineProfile m;
  m.peak_flops = 1000;
  m.gemm_efficiency = 0.5;
  m.memory_bandwidth = 100;
  m.launch = Seconds(0.25);
  m.node_bandwidth = 100;
  m.network_bandwidth = 50;
  m.node_latency = Seconds(0.5);
  m.network_latency = Seconds(2);
  m.link_bandwidth = 25;
  m.ranks_per_node = 2;
  return m;
}

double all_to_all(const MachineProfile& m, const std::vector<Bytes>& received, const std::vector<int>& nodes) {
  return all_to_all_seconds(m, received, nodes).value;
}

TEST(ComputeSeconds, TheLongerOfProductsAtTheReachableRateAndPassesOverMemory) {
  const MachineProfile m = slow_machine();
  EXPECT_EQ(compute_seconds(m, Flops(2000), Bytes(100)).value, 4);  // 2000 / (1000 x 0.5)
  EXPECT_EQ(compute_seconds(m, Flops(2000), Bytes(700)).value, 7);  // 700 / 100
}

TEST(ComputeSeconds, AtLeastALaunchButNothingForNoWork) {
  const MachineProfile m = slow_machine();
  EXPECT_EQ(compute_seconds(m, Flops(1), Bytes(1)).value, 0.25);
  EXPECT_EQ(compute_seconds(m, Flops(0), Bytes(1)).value, 0.25);
  EXPECT_EQ(compute_seconds(m, Flops(0), Bytes(0)).value, 0);
}

TEST(AllToAllSeconds, TheSlowestMemberOfTwoNodesSetsThePace) {
  // Members 0, 1 | 2, 3. Member 3 gets 300 B from each: 300 / 100 s inside, 2 x 300 / 50 s across.
  EXPECT_EQ(all_to_all(slow_machine(), {Bytes(400), Bytes(800), Bytes(0), Bytes(1200)}, {0, 0, 1, 1}), 12 + 2);
}

TEST(AllToAllSeconds, TrafficInsideANodeCountsWhereItIsTheLonger) {
  MachineProfile m = slow_machine();
  m.node_bandwidth = 10;  // 300 / 10 inside against 2 x 300 / 50 across
  EXPECT_EQ(all_to_all(m, {Bytes(400), Bytes(800), Bytes(0), Bytes(1200)}, {0, 0, 1, 1}), 30 + 2);
}

TEST(AllToAllSeconds, OneNodePaysNoNetwork) {
  EXPECT_EQ(all_to_all(slow_machine(), {Bytes(100), Bytes(300)}, {5, 5}), 1.5 + 0.5);
}

TEST(AllToAllSeconds, ALoneMemberOnItsNodeReceivesTheMostFromAfar) {
  // Every member gets 100 B from each of four: member 3 gets 300 B across, the others 200 B inside and 100 B across.
  const std::vector<Bytes> received(4, Bytes(400));
  EXPECT_EQ(all_to_all(slow_machine(), received, {0, 0, 0, 1}), 6 + 2);
}

TEST(AllToAllSeconds, NothingForASingleMemberAndOnlyLatencyForNoRows) {
  EXPECT_EQ(all_to_all(slow_machine(), {Bytes(1 << 30)}, {0}), 0);
  EXPECT_EQ(all_to_all(slow_machine(), {Bytes(0), Bytes(0)}, {0, 0}), 0.5);
  EXPECT_EQ(all_to_all(slow_machine(), {Bytes(0), Bytes(0)}, {0, 1}), 2);
}

TEST(AllToAllSeconds, DispatchOf423BTakesSevenMilliseconds) {
  // 192 MiB per rank, 7/8 of it across nodes of 8 for 64 expert ranks, at 25 GB/s.
  MachineProfile m;
  m.node_bandwidth = 400e9;
  m.network_bandwidth = 25e9;
  m.network_latency = Seconds(0);
  std::vector<int> nodes;
  for (int rank = 0; rank < 64; ++rank) nodes.push_back(node_of(m, rank));
  const std::vector<Bytes> received(64, Bytes(192LL << 20));
  EXPECT_DOUBLE_EQ(all_to_all(m, received, nodes), 192 * 1024.0 * 1024.0 * 7 / 8 / 25e9);
  EXPECT_NEAR(all_to_all(m, received, nodes), 7.0e-3, 0.05e-3);
}

TEST(MessageSeconds, OccupyTheSenderForTheirBytesAndArriveALatencyLater) {
  const MessageSeconds inside = message_seconds(slow_machine(), Bytes(300), true);
  EXPECT_EQ(inside.occupied.value, 3);
  EXPECT_EQ(inside.latency.value, 0.5);
  const MessageSeconds across = message_seconds(slow_machine(), Bytes(300), false);
  EXPECT_EQ(across.occupied.value, 6);
  EXPECT_EQ(across.latency.value, 2);
}

TEST(CopySeconds, TheLinksRateAtLeastALaunchAndNothingForNoBytes) {
  const MachineProfile m = slow_machine();
  EXPECT_EQ(copy_seconds(m, Bytes(300)).value, 12);  // 300 / 25
  EXPECT_EQ(copy_seconds(m, Bytes(6)).value, 0.25);  // 0.24 s at the link's rate, less than a launch
  EXPECT_EQ(copy_seconds(m, Bytes(7)).value, 0.28);
  EXPECT_EQ(copy_seconds(m, Bytes(0)).value, 0);
}

TEST(CopySeconds, OffloadOf96MillionBytesTakesTwoMillisecondsEachWay) {
  MachineProfile m;
  m.link_bandwidth = 48e9;
  EXPECT_DOUBLE_EQ(copy_seconds(m, Bytes(96'000'000)).value, 2e-3);
}

TEST(MachineProfile, RatesTimesAndCountsThatCannotBeAreRefusedByName) {
  const std::pair<std::string, std::function<void(MachineProfile&)>> faults[] = {
      {"peak_flops", [](MachineProfile& m) { m.peak_flops = 0; }},
      {"gemm_efficiency", [](MachineProfile& m) { m.gemm_efficiency = 1.01; }},
      {"memory_bandwidth", [](MachineProfile& m) { m.memory_bandwidth = -1; }},
      {"node_bandwidth", [](MachineProfile& m) { m.node_bandwidth = INFINITY; }},
      {"network_bandwidth", [](MachineProfile& m) { m.network_bandwidth = NAN; }},
      {"link_bandwidth", [](MachineProfile& m) { m.link_bandwidth = 0; }},
      {"launch", [](MachineProfile& m) { m.launch = Seconds(-1e-9); }},
      {"network_latency", [](MachineProfile& m) { m.network_latency = Seconds(NAN); }},
      {"restart_seconds", [](MachineProfile& m) { m.restart_seconds = Seconds(-1); }},
      {"interference", [](MachineProfile& m) { m.interference = 0.9; }},
      {"ranks_per_node", [](MachineProfile& m) { m.ranks_per_node = 0; }}};
  EXPECT_NO_THROW(validate(slow_machine()));
  for (const auto& [name, change] : faults) {
    MachineProfile m = slow_machine();
    change(m);
    try {
      validate(m);
      ADD_FAILURE() << "accepted a wrong " << name;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace spillway
