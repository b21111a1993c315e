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

Matrix<float> part(float* buffer, const ElementRange& range) { return {buffer + range.first, 1, range.size}; }

/// Calls `visit(group, buffers, bucket)` for every bucket of every group.
template <class Visit>
void for_each_bucket(Engine& engine, const Visit& visit) {
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    for (const Bucket& bucket : group.elements.buckets) visit(which, group, bucket);
  }
}

}  // namespace

const device::Group& sharers(const Engine& engine, ParameterGroup group) {
  const device::Communicators& c = engine.communicators;
  if (group == ParameterGroup::plane) return c.plane_gradients;
  return group == ParameterGroup::dense ? c.dense_gradients : c.expert_gradients;
}

ElementRange my_shard(const Engine& engine, ParameterGroup group, const Bucket& bucket) {
  return {bucket.first + sharers(engine, group).rank() * bucket.shard, bucket.shard};
}

GradientReducer::GradientReducer(Engine& engine, LaneTimer& timer, const StepPlan& plan)
    : engine_(engine),
      timer_(timer),
      elements_(plan.elements()),
      blocks_(plan.blocks()),
      order_(plan.elements(), plan.machine()) {}

void GradientReducer::label(const ReductionStep& step) {
  const int layer = blocks_[static_cast<std::size_t>(step.bucket.block)].layer;
  timer_.label({"gradient_reduction", {}, WorkKind::gradient_step, -1, layer});
}

void GradientReducer::exchange(const ReductionStep& s) {
  const device::Group& ranks = sharers(engine_, s.group);
  Flight& flight = flights_[static_cast<std::size_t>(s.group)];
  const GroupBuffers& group = buffers(s);
  flight.received = group.received;
  if (!group.elements.overlapped)
    flight.received =
        static_cast<float*>(engine_.arena.allocate(Category::communication, reduction_buffer(group.elements)));
  ensure(flight.received != nullptr, "the gradient reduction's buffer does not fit");
  std::vector<const float*> pieces(static_cast<std::size_t>(ranks.size()));
  for (int i = 0; i < ranks.size(); ++i) pieces[i] = group.gradients + s.bucket.first + i * s.bucket.shard + s.at;
  label(s);
  flight.event = timer_.network(device::exchange_pieces(engine_.network, ranks, pieces, s.elements, flight.received,
                                                        timer_.clock().compute_lane()),
                                LaneTimer::Message::reduction);
}

void GradientReducer::sum(const ReductionStep& s) {
  const device::Group& ranks = sharers(engine_, s.group);
  const Flight& flight = flights_[static_cast<std::size_t>(s.group)];
  const std::int64_t n = s.elements;
  const Matrix<float> sum = {buffers(s).gradients + s.bucket.first + ranks.rank() * s.bucket.shard + s.at, 1, n};
  label(s);
  timer_.compute(timer_.arrive(flight.event), [&] {
    ops::copy(timer_.stream(), {flight.received, 1, n}, sum);
    for (int i = 1; i < ranks.size(); ++i) ops::accumulate(timer_.stream(), {flight.received + i * n, 1, n}, sum);
  });
}

bool GradientReducer::carry_on(Seconds hides, bool draining) {
  const auto steps = order_.carry_on(hides);
  if (steps.empty()) return false;
  const LaneTimer::Aside aside(timer_);
  const WorkScope scope(timer_, {"gradient_reduction", {}, WorkKind::gradient_step});
  for (const ReductionStep& step : steps) {
    if (device::injected(device::Fault::missing_reduction)) continue;
    if (step.kind == ReductionStep::Kind::exchange)
      exchange(step);
    else if (draining)
      flights_[static_cast<std::size_t>(step.group)].event.wait();
    else
      sum(step);
  }
  return true;
}

bool reduction_buffers_fit(const RankElements& elements, const device::Arena& arena) {
  const ByteLedger& ledger = arena.ledger();
  return std::all_of(elements.begin(), elements.end(), [&](const GroupElements& group) {
    const Bytes buffer = reduction_buffer(group);
    return group.overlapped || buffer.value == 0 || ledger.live() + round_up(buffer, ledger.alignment()) <= arena.cap();
  });
}

void GradientReducer::settle() {
  for (const Flight& flight : flights_) flight.event.wait();
}

void GradientReducer::finish() {
  device::reach(device::Phase::reduction);
  const LaneTimer::Aside aside(timer_);
  const WorkScope scope(timer_, {"gradient_reduction", {}, WorkKind::gradient_step});
  for (const ReductionStep& step : order_.finish()) {
    if (device::injected(device::Fault::missing_reduction)) continue;
    if (step.kind == ReductionStep::Kind::exchange) {
      exchange(step);
      continue;
    }
    sum(step);
    if (!buffers(step).elements.overlapped)
      engine_.arena.release(flights_[static_cast<std::size_t>(step.group)].received);
  }
}

void clear_gradients(Engine& engine, LaneTimer& timer) {
  const WorkScope scope(timer, {"clear_gradients", {}, WorkKind::gradient_step});
  for (const ParameterGroup which : all_groups) {
    const GroupBuffers& group = engine.parameters.group(which);
    timer.compute(Seconds(0), [&] { ops::fill(timer.stream(), 0, {group.gradients, 1, group.elements.padded()}); });
  }
}

void apply_optimizer(Engine& engine, LaneTimer& timer, const TrainingOptions& training, std::int64_t step) {
  const WorkScope scope(timer, {"optimizer", {}, WorkKind::gradient_step});
  timer.set_mitigation(false);
  const ops::AdamOptions options{training.learning_rate, training.adam_beta1, training.adam_beta2,
                                 training.adam_epsilon, step};
  std::vector<device::Event> gathers;
  for_each_bucket(engine, [&](ParameterGroup which, const GroupBuffers& group, const Bucket& bucket) {
    const device::Group& ranks = sharers(engine, which);
    const ElementRange mine = my_shard(engine, which, bucket), moments{bucket.first_of_shard, bucket.shard};
    const Seconds updated = timer.compute(Seconds(0), [&] {
      ops::adam_step(timer.stream(), options, part(group.values, mine), part(group.gradients, mine),
                     part(group.first_moment, moments), part(group.second_moment, moments));
    });
    const std::int64_t piece = reduction_piece(group.elements);
    for (std::int64_t at = 0; ranks.size() > 1 && at < bucket.shard; at += piece) {
      std::vector<float*> pieces(static_cast<std::size_t>(ranks.size()));
      for (int i = 0; i < ranks.size(); ++i) pieces[i] = group.values + bucket.first + i * bucket.shard + at;
      const std::int64_t n = std::min(piece, bucket.shard - at);
      gathers.push_back(timer.network(device::gather_pieces(engine.network, ranks, pieces, n, updated)));
    }
  });
  for (const device::Event& gather : gathers) timer.arrive(gather);
}

std::uint64_t gradient_checksum(Engine& engine) {
  int world_rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  std::uint64_t sum = 0;
  for_each_bucket(engine, [&](ParameterGroup which, const GroupBuffers& group, const Bucket& bucket) {
    const auto mine = ops::checksum(part(group.gradients, my_shard(engine, which, bucket)), 0);
    sum += mix(mine, world_rank, static_cast<int>(which), bucket.block);
  });
  return sum;
}

bool gradients_finite(Engine& engine) {
  bool finite = true;
  for_each_bucket(engine, [&](ParameterGroup which, const GroupBuffers& group, const Bucket& bucket) {
    finite = finite && ops::all_finite(part(group.gradients, my_shard(engine, which, bucket)));
  });
  return finite;
}

}  // namespace spillway
