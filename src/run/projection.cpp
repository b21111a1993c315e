#include "run/projection.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/cost/time_model.hpp"
#include "run/gradient_step.hpp"
#include "run/projected_rank.hpp"

namespace spillway {
namespace {

/// Members add so many numbers to their rows per expert at the gate.
constexpr std::int64_t offer_numbers = 7;

/// The parts of an exchange that compute, before and after the message.
struct Around {
  bool before, after;
};
Around around(const Instruction& i, const BlockContext& c) {
  const bool reorders = c.local_experts() > 1, sliced = i.slice >= 0, forward = i.pass == PassKind::forward;
  if (i.op == Op::dispatch) return forward ? Around{true, reorders} : Around{reorders, true};
  return forward ? Around{reorders, sliced} : Around{sliced, reorders};
}

}  // namespace

Projection::Projection(Setup setup, const PolicyOf& policy_of)
    : setup_(std::move(setup)), grid_(setup_.run_case.grid), loads_(setup_.run_case, setup_.routing) {
  for (int r = 0; r < grid_.ranks(); ++r)
    ranks_.push_back(std::make_unique<Rank>(
        setup_, r, policy_of ? policy_of(r) : make_policy(setup_.policy, setup_.run_case.provisioning.options)));
}

Projection::~Projection() = default;

const ByteLedger& Projection::ledger(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->arena.ledger(); }
const ByteLedger& Projection::host_ledger(int rank) const {
  return ranks_[static_cast<std::size_t>(rank)]->host.ledger();
}
const StepPlan& Projection::plan(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->plan; }

RankProcess Projection::process(Rank& r, std::int64_t iteration) {
  using Kind = Meeting::Kind;
  const int plane = grid_.plane();
  r.timer.begin_iteration();
  r.event.reset();
  r.gate_loads.clear();
  r.rows_in_flight = {};
  r.clock.restart();
  r.reductions.begin_iteration();
  clear_gradients(r);
  WorkOrder& order = r.order;
  for (order.begin_iteration(iteration); !order.finished(); order.advance()) {
    const WorkStep step = order.current();
    const Item& item = step.item;
    if (step.hides_reductions) {
      const LaneTimer::Aside aside(r.timer);
      for (const ReductionStep& s : r.reductions.carry_on(*step.hides_reductions)) {
        if (s.kind == ReductionStep::Kind::exchange) co_yield r.meeting(s);
        r.carried_out(s);
      }
    }
    if (step.gradients_final) r.reductions.gradients_are_final(item.block);
    if (step.instruction != nullptr && step.last && item.kind != Item::Kind::reload)
      r.rows_in_flight.pass_done(r.plan, item);
    const int mb = item.micro_batch;
    const BlockContext& context = r.block(item).context;
    if (item.kind == Item::Kind::receive_input || item.kind == Item::Kind::receive_gradient) {
      const bool input = item.kind == Item::Kind::receive_input;
      const Tensor t = input ? Tensor::block_input : Tensor::d_residual;
      if (!r.allocate(item, t, {})) {
        r.lose("pipeline_receive");
        co_return;
      }
      const MessageEnd from = r.message_end(item);
      co_yield Meeting{Kind::message, {}, {}, r.rank + (from.stage - r.here.pipeline) * plane, !input, from.tag};
      r.store.set_ready({mb, item.block, t}, r.interval.end);
      r.timer.waits_for(LaneTimer::Waits::pipeline);
      continue;
    }
    if (item.kind == Item::Kind::barrier) {
      r.timer.barrier();
      continue;
    }
    if (step.instruction == nullptr) {
      const bool output = item.kind == Item::Kind::send_output;
      const device::TensorKey key{mb, item.block, output ? Tensor::block_output : Tensor::d_residual};
      const MessageEnd end = r.message_end(item);
      const int to = r.rank + (end.stage - r.here.pipeline) * plane;
      const auto cost = setup_.time.message(extent(key.tensor, context, {}).bytes(), r.rank, to);
      const Seconds start = r.clock.network_start(r.store.ready(key));
      const device::Interval sent = r.clock.network_end(start, start + cost.occupied);
      r.timer.network(sent);
      messages_[{r.rank, to, !output, end.tag}] = sent.end + cost.latency;
      r.store.release(key);
      continue;
    }
    const Instruction& i = *step.instruction;
    const ExpertRows rows = r.plan.rows(mb, item.block).of(i);
    if (i.action != Action::run) {
      if (!r.move(item, i)) {
        r.lose(name(i));
        co_return;
      }
      continue;
    }
    if (step.part != Part::end)
      for (const Tensor t : i.allocate)
        if (!r.allocate(item, t, rows)) {
          r.lose(name(i));
          co_return;
        }
    const OperatorRow& row = r.row(item, i);
    const Pass& pass = i.pass == PassKind::forward ? row.forward : row.backward;
    const Seconds ready = r.inputs(item, pass);
    r.timer.set_mitigation(i.recompute);
    const bool fresh = i.allocates(Tensor::block_output) || i.allocates(Tensor::d_mlp_norm_output);
    const OperatorWork work = operator_work(i.op, i.pass, context, rows, fresh);
    Seconds end = ready;
    const bool exchanges = row.collective == Collective::expert_all_to_all && context.expert_parallel > 1;
    if (step.is_gate) {
      r.table = &loads_.table(iteration, r.rank, r.block(item), mb);
      r.offer = r.plan.offer(mb, item.block);
      r.gate_loads.emplace_back(mb, max_over_mean(*r.table));
      co_yield Meeting{Kind::gate, r.clock.network_start(ready),
                       Bytes(grid_.expert() * (context.shape.num_experts + offer_numbers) * 8), 0, 0};
      end = r.await_collective();
    } else if (exchanges) {
      const Around a = around(i, context);
      Seconds& arrival = r.arrivals[{mb, item.block}];
      if (step.part != Part::end) {
        if (a.before) end = r.compute(end, {work.flops, work.bytes});
        count_traffic(r, iteration, item, i);
        co_yield Meeting{Kind::expert_exchange, r.clock.network_start(end), work.received};
        r.timer.network(r.interval, LaneTimer::Message::exchange);
        arrival = r.interval.end;
        if (step.part == Part::begin) continue;
      }
      end = arrival;
      r.timer.waits_for(LaneTimer::Waits::collective);
      if (a.after) end = r.compute(end, {{}, work.bytes_after_message});
    } else if (row.collective == Collective::tensor_parallel) {
      if (work.gathered.value > 0) {
        co_yield Meeting{Kind::tensor_exchange, r.clock.network_start(end), work.gathered};
        end = r.await_collective();
      }
      end = r.compute(end, {work.flops, work.bytes});
      if (work.received.value > 0) {
        co_yield Meeting{Kind::tensor_exchange, r.clock.network_start(end), work.received};
        end = r.compute(r.await_collective(), {{}, work.bytes_after_message});
      }
    } else {
      end = r.compute(ready, {work.flops, work.bytes + work.bytes_after_message});
    }
    for (const Tensor t : pass.writes) r.store.set_ready({mb, item.block, t}, end);
    for (const Tensor t : i.release) r.store.release({mb, item.block, t});
    r.timer.count_model_flops(i, context, rows);
    if (step.is_gate) order.gate({*r.table, r.offers, r.here.expert});
  }
  if (!reduction_buffers_fit(r.plan.elements(), r.arena)) {
    r.lose("gradient_reduction");
    co_return;
  }
  // the gradient step, as gradient_step.cpp does it
  {
    const LaneTimer::Aside aside(r.timer);
    void* buffer = nullptr;
    for (const ReductionStep& s : r.reductions.finish()) {
      const GroupElements& group = r.plan.elements()[static_cast<std::size_t>(s.group)];
      if (s.kind == ReductionStep::Kind::exchange) {
        if (!group.overlapped) buffer = r.arena.allocate(Category::communication, reduction_buffer(group));
        co_yield r.meeting(s);
      }
      r.carried_out(s);
      if (s.kind == ReductionStep::Kind::sum && !group.overlapped) r.arena.release(buffer);
    }
  }
  r.timer.set_mitigation(false);
  for (std::size_t g = 0; g < parameter_group_count; ++g) {
    const GroupElements& group = r.plan.elements()[g];
    const std::int64_t piece = reduction_piece(group);
    for (const Bucket& bucket : group.buckets) {
      const Seconds updated = r.compute(Seconds(0), {{}, Bytes(7 * 4 * bucket.shard)});
      for (std::int64_t at = 0; group.shards > 1 && at < bucket.shard; at += piece) {
        const std::int64_t bytes = group.shards * std::min(piece, bucket.shard - at) * 4;
        co_yield Meeting{gradient_kind(static_cast<ParameterGroup>(g)), r.clock.network_start(updated), Bytes(bytes)};
        r.await_collective();
      }
    }
  }
}

/// Bytes that the rank sends in an exchange of rows, as operators_exchange.cpp counts them.
void Projection::count_traffic(Rank& r, std::int64_t iteration, const Item& item, const Instruction& i) {
  const BlockContext& c = r.block(item).context;
  const GateTable& whole = loads_.table(iteration, r.rank, r.block(item), item.micro_batch);
  const std::int64_t tiles = r.plan.mitigations(item.micro_batch, item.block).tiles_per_slice;
  const GateTable slice = i.slice >= 0 ? cut(whole, {tiles, i.slice}).table : GateTable{};
  const GateTable& table = i.slice >= 0 ? slice : whole;
  const bool to_experts = (i.op == Op::dispatch) == (i.pass == PassKind::forward);
  const bool weighted = i.op == Op::dispatch && !c.weights_at_combine();
  const std::int64_t row_bytes = 4 * (c.shape.hidden_size + (weighted ? 1 : 0)), local = table.local_experts();
  RankIteration& totals = r.timer.totals();
  for (int other = 0; other < grid_.expert(); ++other) {
    if (other == r.here.expert) continue;
    const int source = to_experts ? r.here.expert : other, owner = to_experts ? other : r.here.expert;
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < local; ++e) rows += table.of(source, owner * local + e);
    const int rank = grid_.expert_rank(r.here.pipeline, r.here.expert_replica, other);
    const MachineProfile& machine = setup_.run_case.machine;
    const bool inside = node_of(machine, rank) == node_of(machine, r.rank);
    (inside ? totals.intra_node_bytes : totals.cross_node_bytes) += Bytes(rows * row_bytes);
  }
}

void Projection::clear_gradients(Rank& r) {
  for (const GroupElements& group : r.plan.elements()) r.compute(Seconds(0), {{}, Bytes(group.padded() * 4)});
}

std::vector<int> Projection::members(const Rank& r, Meeting::Kind kind) const {
  std::vector<int> list;
  const Coordinates& at = r.here;
  switch (kind) {
    case Meeting::Kind::gate:
    case Meeting::Kind::expert_exchange:
      for (int e = 0; e < grid_.expert(); ++e) list.push_back(grid_.expert_rank(at.pipeline, at.expert_replica, e));
      break;
    case Meeting::Kind::tensor_exchange:
      for (int t = 0; t < grid_.tensor(); ++t) list.push_back(grid_.rank(at.pipeline, at.data, t));
      break;
    case Meeting::Kind::plane_gradients:
      for (int i = 0; i < grid_.plane(); ++i) list.push_back(at.pipeline * grid_.plane() + i);
      break;
    case Meeting::Kind::dense_gradients:
      for (int d = 0; d < grid_.data(); ++d) list.push_back(grid_.rank(at.pipeline, d, at.tensor));
      break;
    case Meeting::Kind::expert_gradients:
      for (int i = 0; i < grid_.expert_replicas(); ++i) list.push_back(grid_.expert_rank(at.pipeline, i, at.expert));
      break;
    case Meeting::Kind::message:
      list.push_back(r.rank);
      break;
  }
  return list;
}

/// True once what a waiting rank waits for has come; a collective is settled for all its members by the last of them.
bool Projection::ready_to_go_on(Rank& r) {
  const Meeting& m = r.process->meeting();
  if (m.kind == Meeting::Kind::message) {
    const auto found = messages_.find({m.from, r.rank, m.backward, m.tag});
    if (found == messages_.end()) return false;
    r.interval = {found->second, found->second};
    messages_.erase(found);
    return true;
  }
  if (!r.arrived) return true;  // settled by another member
  const std::vector<int> group = members(r, m.kind);
  const bool all = std::all_of(group.begin(), group.end(), [&](int i) {
    const Rank& other = *ranks_[static_cast<std::size_t>(i)];
    return other.arrived && !other.process->done() && other.process->meeting().kind == m.kind;
  });
  if (all) settle(group);
  return all;
}

void Projection::settle(const std::vector<int>& group) {
  Seconds begin;
  std::vector<Bytes> received;
  std::vector<Offer> offers;
  for (const int i : group) {
    Rank& r = *ranks_[static_cast<std::size_t>(i)];
    begin = std::max(begin, r.process->meeting().start);
    received.push_back(r.process->meeting().received);
    offers.push_back(r.offer);
  }
  const Seconds end = begin + setup_.time.all_to_all(received, group);
  for (const int i : group) {
    Rank& r = *ranks_[static_cast<std::size_t>(i)];
    r.interval = r.clock.network_end(begin, end);
    r.offers = offers;
    r.arrived = false;
  }
}

ProjectedIteration Projection::run(std::int64_t iteration) {
  messages_.clear();
  for (auto& r : ranks_) {
    r->store.settle();
    r->store.clear();
    r->process = std::make_unique<RankProcess>(process(*r, iteration));
    r->process->resume();
    r->arrived = !r->process->done();
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& r : ranks_)
      while (!r->process->done() && ready_to_go_on(*r)) {
        r->process->resume();
        r->arrived = !r->process->done();
        moved = true;
      }
  }
  ProjectedIteration result;
  IterationRecord& record = result.record;
  record.index = iteration;
  for (auto& r : ranks_) {
    r->timer.end_iteration();
    record.seconds = std::max(record.seconds, r->clock.now());
    if (r->event && (!record.oom || r->event->seconds < record.oom->seconds)) record.oom = r->event;
    result.ranks.push_back(r->timer.totals());
  }
  for (auto& r : ranks_) {
    ensure(record.oom || (r->process->done() && r->order.finished()), "projected rank {} does not get to its end",
           r->rank);
    r->process.reset();
  }
  count_loads(record);
  return result;
}

/// As the executor counts them: every expert group once.
void Projection::count_loads(IterationRecord& record) const {
  double sum = 0;
  std::int64_t count = 0;
  for (const auto& r : ranks_) {
    record.overload_max_cum = std::max(record.overload_max_cum, r->rows_in_flight.peak_over_balance());
    if (r->here.expert != 0) continue;
    std::map<int, std::pair<double, int>> of_micro_batch;
    for (const auto& [mb, load] : r->gate_loads) {
      record.overload_sum += load;
      ++record.overload_count;
      record.overload_max = std::max(record.overload_max, load);
      of_micro_batch[mb].first += load;
      ++of_micro_batch[mb].second;
    }
    for (const auto& [mb, load] : of_micro_batch) {
      const double mean = load.first / load.second;
      record.imbalance = std::max(record.imbalance, mean);
      sum += mean;
      ++count;
    }
  }
  if (count > 0) record.imbalance_mean = sum / static_cast<double>(count);
}

}  // namespace spillway
