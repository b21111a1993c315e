#include "run/calibrate.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "device/gemm.hpp"
#include "run/calibrate_compute.hpp"
#include "run/calibrate_network.hpp"

namespace spillway {
namespace {

constexpr double busy_load = 0.5;  ///< load average of a node where something else runs

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// "0.25, 1 MiB"
std::string in_mebibytes(const std::vector<Bytes>& sizes) {
  std::vector<std::string> words;
  words.reserve(sizes.size());
  for (const Bytes size : sizes) words.push_back(fmt::format("{:.4g}", mebibytes(size)));
  return fmt::format("{} MiB", fmt::join(words, ", "));
}

std::string in_gigabytes(const std::vector<SampleSummary>& rates) {
  std::vector<std::string> words;
  words.reserve(rates.size());
  for (const SampleSummary& s : rates) words.push_back(fmt::format("{:.3g}", s.median * 1e-9));
  return fmt::format("{} GB/s", fmt::join(words, ", "));
}

std::vector<std::string> setting(const Session& session, const CalibrateScale& scale) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string mpi(version, static_cast<std::size_t>(length));
  const auto& nodes = session.node_of_rank();
  const LaunchFacts& facts = session.facts();
  double load = 0;
  getloadavg(&load, 1);
  std::vector<std::string> lines = {
      fmt::format("{}, measured on {:%Y-%m-%d} by spillway calibrate", session.host(), fmt::gmtime(std::time(nullptr))),
      fmt::format(
          "ranks: {}, on {} node(s), {} of them on the first with {} cores, threads of a rank: {}; load average "
          "before: {:.1f}; {}; {}; Kokkos {}.{}.{} {}",
          session.world(), 1 + *std::max_element(nodes.begin(), nodes.end()), facts.ranks_on_this_node,
          facts.cores_on_this_node, session.threads(), load, mpi.substr(0, mpi.find_first_of(",\n")),
          device::gemm_library(), KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100,
          Kokkos::DefaultExecutionSpace::name()),
      fmt::format("All ranks at once, {} repetitions of each size; spread: distance of the quartiles / median.",
                  scale.repetitions)};
  if (facts.ranks_on_this_node > facts.cores_on_this_node)
    lines.emplace_back("Ranks share cores: these are the rates of a share of a core, and no benchmark.");
  if (load > busy_load)
    lines.emplace_back("Other work ran on the first node: repeat the measurement where nothing else runs.");
  return lines;
}

void add_products(Calibration& c, const ProductRates& rates, const CalibrateScale& scale) {
  const double products = rate_of_equal_parts(rates.shapes);
  c.constants.push_back({"peak_flops", toml_number(rates.best()),
                         fmt::format("FLOP/s in fp32, best of all products (big square of {}: median {}, spread {})",
                                     scale.square, toml_number(rates.square.median), percent(rates.square.spread))});
  c.constants.push_back(
      {"gemm_efficiency", toml_number(products / rates.best()),
       fmt::format("FLOPs / time of {} products of experts and projections, forward, input and weight gradients, equal "
                   "FLOPs of each at its median, / peak; spread over shapes {}. Core attention at sequence 512 reaches "
                   "{} of the peak (spread {}); the model has one share for both",
                   rates.shapes.size(), percent(over_parts(rates.shapes).spread),
                   toml_number(rates.attention.median / rates.best()), percent(rates.attention.spread))});
}

void add_memory(Calibration& c, const MemoryRates& rates, const CalibrateScale& scale) {
  const SampleSummary copies = over_parts(rates.copies);
  c.constants.push_back(
      {"memory_bandwidth", toml_number(rates.passes()),
       fmt::format(
           "bytes/s of passes over cold memory, bytes / time of triads ({}), norms ({}) and SwiGLUs ({}) over {} "
           "per operand; largest spread {}",
           in_gigabytes(rates.triads), in_gigabytes(rates.norms), in_gigabytes(rates.activations),
           in_mebibytes(scale.passes), percent(rates.worst_spread()))});
  c.constants.push_back({"link_bandwidth", toml_number(copies.median),
                         fmt::format("bytes/s that a copy in host memory moves, median over {} ({}); spread {}",
                                     in_mebibytes(scale.passes), in_gigabytes(rates.copies), percent(copies.spread))});
}

std::string fit_source(std::string_view ranks, const MessageFit& fit, const CalibrateScale& scale) {
  return fmt::format("least squares over all-to-alls {}, {} received into cold memory; the line is off by {} at most",
                     ranks, in_mebibytes(scale.messages), percent(fit.error));
}

/// What cannot be measured takes the rate next to it: ranks of a node that of copies, other nodes that inside a node.
void add_network(Calibration& c, const NetworkRates& rates, const MemoryRates& memory, Seconds launch,
                 const CalibrateScale& scale) {
  const auto add = [&c](const std::string& kind, const MessageFit& fit, const std::string& source) {
    c.constants.push_back({kind + "_bandwidth", toml_number(fit.bandwidth), fmt::format("bytes/s, {}", source)});
    c.constants.push_back({kind + "_latency", toml_microseconds(fit.latency.value), "of the same line"});
  };
  const MessageFit copy{launch, over_parts(memory.copies).median, 0};
  const MessageFit node = rates.node.value_or(copy);
  add("node", node,
      rates.node ? fit_source("between ranks of a node", *rates.node, scale)
                 : "not measured, no node had two ranks: the rate of copies and the latency of a launch");
  add("network", rates.network.value_or(node),
      rates.network ? fit_source("between all ranks, bytes from other nodes", *rates.network, scale)
                    : "not measured, the job had one node: as inside the node");
}

}  // namespace

Calibration calibrate(const Session& session, bool quick) {
  const CalibrateScale scale = quick ? CalibrateScale::quick() : CalibrateScale::full();
  const Together world(MPI_COMM_WORLD, scale.repetitions);
  Calibration c;
  c.setting = setting(session, scale);
  add_products(c, measure_products(world, scale), scale);
  const MemoryRates memory = measure_memory(world, scale);
  add_memory(c, memory, scale);
  const SampleSummary launch = measure_launch(world);
  c.constants.push_back({"launch", toml_microseconds(launch.median),
                         fmt::format("of an empty kernel, mean of many; spread {}", percent(launch.spread))});
  add_network(c,
              measure_network(MPI_COMM_WORLD, session.node_of_rank(),
                              {scale.messages, scale.repetitions, scale.memory}),
              memory, Seconds(launch.median), scale);
  c.constants.push_back(
      {"ranks_per_node", fmt::format("{}", session.facts().ranks_on_this_node), "as this job was started"});
  const SampleSummary interference = measure_interference(world, scale);
  c.constants.push_back({"interference", toml_number(std::max(1.0, interference.median)),
                         fmt::format("time of a product beside a thread of its rank that copies memory, over its time "
                                     "alone; spread {}",
                                     percent(interference.spread))});
  c.constants.push_back({"restart_seconds", "\"1 s\"",
                         "chosen: put the restart time here that a run on this machine measures "
                         "(restart_seconds_measured in its result.json)"});
  c.constants.push_back({"shared_memory", "true", "host and device are one: the host backend computes in host memory"});
  return c;
}

}  // namespace spillway
