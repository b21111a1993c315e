#include "run/calibrate_network.hpp"

#include <algorithm>

#include "device/collectives.hpp"
#include "run/calibrate_together.hpp"
#include "run/calibrate_walk.hpp"

namespace spillway {
namespace {

constexpr std::int64_t columns = 256;
constexpr std::int64_t row_bytes = columns * static_cast<std::int64_t>(sizeof(float));

/// All-to-alls of equal parts over a group, timed by its slowest member. `outside` of the members' parts are counted as
/// bytes that travel.
std::vector<MessageTime> all_to_all_times(const device::Group& group, std::int64_t outside, const MessagePlan& plan) {
  const Together together(group.comm(), plan.repetitions);
  Walk walk(plan.memory);
  std::vector<MessageTime> times;
  for (const Bytes size : plan.sizes) {
    const std::int64_t members = group.size(), rows = std::max<std::int64_t>(size.value / (members * row_bytes), 1);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(members), rows);
    device::Clock clock(nullptr);
    device::Network network(clock);
    const SampleSummary seconds = summarize(together.slowest([&] {
      float* const sent = walk.next(2 * members * rows * columns);
      float* const received = sent + members * rows * columns;
      device::all_to_all(network, group,
                         {{sent, members * rows, columns}, counts, {received, members * rows, columns}, counts},
                         Seconds(0))
          .wait();
    }));
    times.push_back({Bytes(rows * row_bytes * outside), Seconds(seconds.median)});
  }
  return times;
}

}  // namespace

NetworkRates measure_network(MPI_Comm comm, std::span<const int> node_of_rank, const MessagePlan& plan) {
  int me = 0;
  MPI_Comm_rank(comm, &me);
  const auto neighbours = [&](std::size_t rank) {
    return std::count(node_of_rank.begin(), node_of_rank.end(), node_of_rank[rank]);
  };
  NetworkRates rates;

  // 1. inside nodes, all nodes at once; the first rank with company tells the others
  std::size_t speaker = 0;
  while (speaker < node_of_rank.size() && neighbours(speaker) < 2) ++speaker;
  if (speaker < node_of_rank.size()) {
    const device::Group node(comm, node_of_rank[static_cast<std::size_t>(me)]);
    MessageFit fit;
    if (node.size() > 1) fit = fit_messages(all_to_all_times(node, node.size() - 1, plan));
    MPI_Bcast(&fit, sizeof fit, MPI_BYTE, static_cast<int>(speaker), comm);
    rates.node = fit;
  }

  // 2. between nodes: what a rank of the emptiest node receives from the others
  std::int64_t outside = 0;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank)
    outside = std::max<std::int64_t>(outside, std::ssize(node_of_rank) - neighbours(rank));
  if (outside > 0) {
    const device::Group all(comm, 0);
    rates.network = fit_messages(all_to_all_times(all, outside, plan));
  }
  return rates;
}

}  // namespace spillway
