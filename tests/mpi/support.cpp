#include "support.hpp"

#include <algorithm>
#include <bit>

#include "base/random.hpp"

#include "run/gradient_step.hpp"
#include "run/load_source.hpp"

namespace spillway::test {

Case tiny_case(std::vector<std::string> settings) {
  return app::read_case({SPILLWAY_SOURCE_DIR "/inputs/runs/tiny.toml", std::move(settings)});
}

std::vector<std::string> settings_of(Layout layout, int sequences, int micro_batch_size) {
  return {fmt::format("parallel.pipeline_parallel={}", layout.pipeline),
          fmt::format("parallel.data_parallel={}", layout.data),
          fmt::format("parallel.expert_parallel={}", layout.expert),
          fmt::format("parallel.tensor_parallel={}", layout.tensor),
          fmt::format("training.micro_batch_size={}", micro_batch_size),
          fmt::format("training.micro_batches={}", sequences / (layout.data * micro_batch_size))};
}

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

std::string name_of(const testing::TestParamInfo<Variant>& info) { return info.param.name; }

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

namespace {

Case checked(Case c) {
  validate_real_run(c, session().facts());
  return c;
}

}  // namespace

Trial::Trial(Case c)
    : case_(checked(std::move(c))),
      routing_(make_routing_source(case_.routing, routing_problem(case_))),
      time_(case_.machine),
      context_(make_context(case_, session(), *routing_, case_.clock == ClockKind::virtual_time ? &time_ : nullptr)) {}

ExpertRows Trial::rows(int rank, std::int64_t iteration, int micro_batch, const StageBlock& block) const {
  if (block.kind != BlockKind::moe) return {};
  const Grid grid(case_.grid);
  const Coordinates here = grid.coordinates(rank);
  const std::int64_t local = case_.model.num_experts / grid.expert();
  std::vector<std::int64_t> received(local, 0);
  for (int member = 0; member < grid.expert(); ++member) {
    const Coordinates there = grid.coordinates(grid.expert_rank(here.pipeline, here.expert_replica, member));
    const auto sent =
        rows_of(*routing_, routing_problem(case_), {iteration, block.layer, 0}, tokens_of(case_, there, micro_batch));
    for (std::int64_t e = 0; e < local; ++e) received[e] += sent[here.expert * local + e];
  }
  ExpertRows result;
  for (const std::int64_t n : received) {
    result.rows += n;
    result.active += n > 0 ? 1 : 0;
  }
  return result;
}

ByteLedger Trial::forecast(const std::string& policy, int rank, std::int64_t iteration) const {
  const auto chosen = make_policy(policy, case_.provisioning.options);
  StepPlan plan(step_setup(case_, context_.schedule, Grid(case_.grid).coordinates(rank).pipeline,
                           case_.provisioning.margin),
                *chosen);
  return forecast_memory(plan, [&](int micro_batch,
                                   const StageBlock& block) { return rows(rank, iteration, micro_batch, block); })
      .ledger();
}

Bytes Trial::forecast_peak(const std::string& policy, std::int64_t iteration) const {
  Bytes peak;
  for (int rank = 0; rank < Grid(case_.grid).ranks(); ++rank)
    peak = std::max(peak, forecast(policy, rank, iteration).peak());
  return peak;
}

std::uint64_t gradient_fingerprint(PolicyRunner& runner) {
  const device::Communicators& comm = runner.engine().communicators;
  std::uint64_t sum = 0;
  for (const auto& [key, place] : runner.engine().parameters.places()) {
    const GroupBuffers& group = runner.engine().parameters.group(place.shape.group);
    const auto [first, shard] = my_shard(runner.engine(), place.shape.group, group.elements.bucket_of(key.first));
    const auto in_layer = [&, &shape = place.shape](std::int64_t i) {
      return static_cast<std::uint64_t>(ParameterStore::whole_index(shape, runner.engine().grid, comm.here, i));
    };
    for (std::int64_t i = std::max(place.offset, first); i < std::min(place.offset + place.shape.size(), first + shard);
         ++i)
      sum += mix(std::bit_cast<std::uint32_t>(group.gradients[i]), static_cast<std::uint64_t>(key.second),
                 static_cast<std::uint64_t>(runner.blocks()[static_cast<std::size_t>(key.first)].layer + 1),
                 in_layer(i - place.offset));
  }
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, comm.world.comm());
  return sum;
}

std::map<std::int64_t, std::uint64_t> checksums(const PolicyRun& run) {
  std::map<std::int64_t, std::uint64_t> found;
  for (const IterationRecord& record : run.iterations) {
    if (!record.completed()) continue;
    const auto [at, is_new] = found.emplace(record.index, record.gradient_checksum.value());
    EXPECT_EQ(at->second, *record.gradient_checksum)
        << run.policy << ", iteration " << record.index << (is_new ? "" : ": another attempt found other gradients");
  }
  return found;
}

}  // namespace spillway::test
