#include "run/projected_rank.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "run/policy_run.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

constexpr Bytes no_cap{std::int64_t{1} << 60};

StepPlan::Setup plan_setup(const Projection::Setup& s, int stage, const Policy& policy) {
  StepPlan::Setup setup = step_setup(s.run_case, s.schedule, stage, s.run_case.provisioning.margin);
  if (!policy.obeys_cap()) setup.limits.cap = no_cap;
  return setup;
}

device::ArenaOptions memory(const Projection::Setup& s, Bytes cap) {
  return {cap, s.run_case.memory.alignment, Bytes(std::int64_t{1} << 40), true, false};
}

/// Static memory takes its place in the arena, untouched.
void allocate_static(device::Arena& arena, const RankElements& elements, std::int64_t bytes_per_element) {
  for (const GroupElements& group : elements) {
    if (group.buckets.empty()) continue;
    const StaticBytes bytes = static_bytes(group.padded(), bytes_per_element, group.shards);
    const Bytes half(bytes.optimizer.value / 2), buffer = group.overlapped ? reduction_buffer(group) : Bytes(0);
    for (const auto& [category, size] :
         {std::pair(Category::parameters, bytes.parameters), std::pair(Category::gradients, bytes.gradients),
          std::pair(Category::optimizer, half), std::pair(Category::optimizer, bytes.optimizer - half),
          std::pair(Category::communication, buffer)})
      ensure(arena.allocate(category, size) != nullptr,
             "static memory of {} bytes does not fit: the case is infeasible", size.value);
  }
}

}  // namespace

ProjectedRank::ProjectedRank(const Projection::Setup& s, int number, std::unique_ptr<Policy> chosen)
    : rank(number),
      here(Grid(s.run_case.grid).coordinates(number)),
      stages(s.run_case.grid.pipeline_parallel),
      policy(std::move(chosen)),
      plan(plan_setup(s, here.pipeline, *policy), *policy),
      order(plan),
      reductions(plan.elements(), plan.machine()),
      clock(&s.time),
      timer(clock, stream),
      arena(memory(s, plan.limits().cap)),
      host(memory(s, s.run_case.memory.host_cap)),
      copies(clock, false),
      store({arena, s.run_case.machine.shared_memory ? arena : host, copies, clock},
            static_cast<int>(s.run_case.training.micro_batches), static_cast<int>(plan.blocks().size())) {
  allocate_static(arena, plan.elements(), s.run_case.model.bytes_per_element);
  for (const StageBlock& b : plan.blocks()) {
    tables[0].push_back(operator_table(b.kind, b.context));
    tables[1].push_back(operator_table(b.kind, b.context, true));
  }
}

bool ProjectedRank::move(const Item& item, const Instruction& i) {
  const device::TensorKey key{item.micro_batch, item.block, i.subject};
  const BlockContext& c = block(item).context;
  const Category where = category(i.subject, c);
  const auto cast = [&] {
    timer.set_mitigation(true);
    timer.set_copied(store.copied(key), store.ready(key));
    const std::int64_t elements = store.elements(key);
    store.set_ready(key, compute(store.ready(key), {{}, Bytes(elements * 4) + quantized_bytes(elements)}));
  };
  switch (i.action) {
    case Action::offload:
      if (!store.offload(key, where)) return false;
      timer.copying(device::CopyLane::out, store.copy(key));
      return true;
    case Action::reload:
      if (!store.reload(key, where)) return false;
      timer.copying(device::CopyLane::in, store.copy(key));
      return true;
    case Action::quantize:
      if (!store.allocate_small(key, where)) return false;
      cast();
      store.release(key);
      return true;
    case Action::dequantize:
      if (!store.allocate_again(key, where)) return false;
      cast();
      store.release_small(key);
      return true;
    default:
      for (const Tensor t : i.release) store.release({item.micro_batch, item.block, t});
      return true;
  }
}

Meeting ProjectedRank::meeting(const ReductionStep& s) const {
  const std::int64_t sharers = plan.elements()[static_cast<std::size_t>(s.group)].shards;
  return {gradient_kind(s.group), clock.network_start(clock.compute_lane()), Bytes(sharers * s.elements * 4)};
}

void ProjectedRank::carried_out(const ReductionStep& s) {
  const auto group = static_cast<std::size_t>(s.group);
  if (s.kind == ReductionStep::Kind::exchange) {
    timer.network(interval, LaneTimer::Message::reduction);
    gradients_arrive[group] = interval.end;
    return;
  }
  timer.waits_for(LaneTimer::Waits::collective);
  const std::int64_t bytes = s.elements * 4, sharers = plan.elements()[group].shards;
  compute(gradients_arrive[group], {{}, Bytes(2 * bytes + (sharers - 1) * 3 * bytes)});
}

Seconds ProjectedRank::inputs(const Item& item, const Pass& pass) {
  Seconds copied, otherwise;
  for (const auto* list : {&pass.reads, &pass.writes, &pass.scratch})
    for (const Tensor t : *list) {
      const device::TensorKey key{item.micro_batch, item.block, t};
      if (!store.holds(key)) continue;
      copied = std::max(copied, store.copied(key));
      if (store.copied(key) < store.ready(key)) otherwise = std::max(otherwise, store.ready(key));
    }
  timer.set_copied(copied, otherwise);
  return std::max(copied, otherwise);
}

}  // namespace spillway
