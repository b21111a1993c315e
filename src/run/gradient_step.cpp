#include "run/gradient_step.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "device/collectives.hpp"
#include "device/fault.hpp"
#include "device/ops/elementwise.hpp"
#include "run/work_scope.hpp"

namespace spillway {
namespace {

namespace ops = device::ops;
using device::Matrix;

constexpr std::array<ParameterGroup, parameter_group_count> all_groups = {ParameterGroup::dense, ParameterGroup::expert,
                                                                          ParameterGroup::plane};

Matrix<float> shard(const Engine& engine, ParameterGroup which, float* buffer, const GroupElements& elements) {
  return {buffer + sharers(engine, which).rank() * elements.shard(), 1, elements.shard()};
}

}  // namespace

const device::Group& sharers(const Engine& engine, ParameterGroup group) {
  const device::Communicators& c = engine.communicators;
  if (group == ParameterGroup::plane) return c.plane_gradients;
  return group == ParameterGroup::dense ? c.dense_gradients : c.expert_gradients;
}

bool gradient_buffers_fit(Engine& engine) {
  for (const ParameterGroup which : all_groups) {
    const Bytes buffer = reduction_buffer(engine.parameters.group(which).elements);
    if (buffer.value > 0 &&
        engine.arena.ledger().live() + round_up(buffer, engine.arena.ledger().alignment()) > engine.arena.cap())
      return false;
  }
  return true;
}

void clear_gradients(Engine& engine, LaneTimer& timer) {
  const WorkScope scope(timer, {"clear_gradients", {}, WorkKind::gradient_step});
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    timer.compute(Seconds(0), [&] { ops::fill(timer.stream(), 0, {group.gradients, 1, group.elements.padded()}); });
  }
}

void reduce_gradients(Engine& engine, LaneTimer& timer) {
  device::reach(device::Phase::reduction);
  const WorkScope scope(timer, {"gradient_reduction", {}, WorkKind::gradient_step});
  timer.set_mitigation(false);
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    const device::Group& ranks = sharers(engine, which);
    const std::int64_t length = group.elements.shard();
    if (ranks.size() == 1 || length == 0 || device::injected(device::Fault::missing_reduction)) continue;
    const std::int64_t piece = std::min(length, reduction_piece);
    auto* received =
        static_cast<float*>(engine.arena.allocate(Category::communication, reduction_buffer(group.elements)));
    ensure(received != nullptr, "the gradient reduction's buffer does not fit");
    Seconds ready = timer.clock().compute_lane();
    for (std::int64_t at = 0; at < length; at += piece) {
      const std::int64_t n = std::min(piece, length - at);
      std::vector<const float*> pieces(ranks.size());
      for (int i = 0; i < ranks.size(); ++i) pieces[i] = group.gradients + i * length + at;
      const Seconds sent =
          timer.arrive(timer.network(device::exchange_pieces(engine.network, ranks, pieces, n, received, ready)));
      const Matrix<float> sum = {group.gradients + ranks.rank() * length + at, 1, n};
      ready = timer.compute(sent, [&] {
        ops::copy(timer.stream(), {received, 1, n}, sum);
        for (int i = 1; i < ranks.size(); ++i) ops::accumulate(timer.stream(), {received + i * n, 1, n}, sum);
      });
    }
    engine.arena.release(received);
  }
}

void apply_optimizer(Engine& engine, LaneTimer& timer, const TrainingOptions& training, std::int64_t step) {
  const WorkScope scope(timer, {"optimizer", {}, WorkKind::gradient_step});
  timer.set_mitigation(false);
  const ops::AdamOptions options{training.learning_rate, training.adam_beta1, training.adam_beta2,
                                 training.adam_epsilon, step};
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    const device::Group& ranks = sharers(engine, which);
    const std::int64_t length = group.elements.shard();
    if (length == 0) continue;
    Seconds ready = timer.compute(Seconds(0), [&] {
      ops::adam_step(timer.stream(), options, shard(engine, which, group.values, group.elements),
                     shard(engine, which, group.gradients, group.elements), {group.first_moment, 1, length},
                     {group.second_moment, 1, length});
    });
    if (ranks.size() == 1) continue;
    for (std::int64_t at = 0; at < length; at += reduction_piece) {
      std::vector<float*> pieces(ranks.size());
      for (int i = 0; i < ranks.size(); ++i) pieces[i] = group.values + i * length + at;
      const std::int64_t n = std::min(reduction_piece, length - at);
      ready = timer.arrive(timer.network(device::gather_pieces(engine.network, ranks, pieces, n, ready)));
    }
  }
}

std::uint64_t gradient_checksum(Engine& engine) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  std::uint64_t sum = 0;
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    const auto mine = ops::checksum(shard(engine, which, group.gradients, group.elements), 0);
    sum += mix(mine, world_rank, static_cast<int>(which));
  }
  return sum;
}

bool gradients_finite(Engine& engine) {
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    if (!ops::all_finite(shard(engine, which, group.gradients, group.elements))) return false;
  }
  return true;
}

}  // namespace spillway
