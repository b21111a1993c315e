#pragma once
// What one rank of a projection has: its plan, books, clock and lanes, as the executor has them, without data.
#include <algorithm>
#include <map>
#include <optional>

#include "device/activation_store.hpp"
#include "plan/reduction_order.hpp"
#include "run/lane_timer.hpp"
#include "run/projection.hpp"
#include "run/rows_in_flight.hpp"

namespace spillway {

struct ProjectedRank {
  ProjectedRank(const Projection::Setup& setup, int rank, std::unique_ptr<Policy> policy);
  ProjectedRank(const ProjectedRank&) = delete;
  ProjectedRank& operator=(const ProjectedRank&) = delete;

  const StageBlock& block(const Item& item) const { return plan.blocks()[static_cast<std::size_t>(item.block)]; }
  const OperatorRow& row(const Item& item, const Instruction& i) const {
    const bool sliced = i.slice >= 0 || i.op == Op::sum_slices;
    const auto& of_block = tables[sliced ? 1 : 0][static_cast<std::size_t>(item.block)];
    return *std::find_if(of_block.begin(), of_block.end(), [&i](const OperatorRow& r) { return r.op == i.op; });
  }
  bool allocate(const Item& item, Tensor t, const ExpertRows& rows) {
    const BlockContext& c = block(item).context;
    return store.allocate({item.micro_batch, item.block, t}, extent(t, c, rows), category(t, c));
  }
  /// Copies, casts and drops. False when memory does not suffice.
  bool move(const Item& item, const Instruction& i);
  /// A step of the gradient reduction: where it waits for the others, and what it does then.
  Meeting meeting(const ReductionStep& exchange) const;
  void carried_out(const ReductionStep& step);
  /// When the inputs of an operator's pass are there.
  Seconds inputs(const Item& item, const Pass& pass);
  Seconds compute(Seconds ready, device::Work work) {
    return timer.compute(ready, [&] { stream.charge(work); });
  }

  /// The compute lane needs what the meeting's collective brings: when that is there.
  Seconds await_collective() {
    timer.network(interval);
    timer.waits_for(LaneTimer::Waits::collective);
    return interval.end;
  }

  MessageEnd message_end(const Item& item) const {
    return spillway::message_end(item, block(item).chunk, {here.pipeline, stages, plan.micro_batches()});
  }

  void lose(std::string_view operator_name) { event = OutOfMemory{rank, clock.now(), std::string(operator_name)}; }

  int rank;
  Coordinates here;
  int stages;
  std::unique_ptr<Policy> policy;
  StepPlan plan;
  WorkOrder order;
  ReductionOrder reductions;
  device::Stream stream;
  device::Clock clock;
  LaneTimer timer;
  device::Arena arena, host;
  device::CopyEngine copies;
  device::ActivationStore store;
  std::array<std::vector<std::vector<OperatorRow>>, 2> tables;  // whole, in slices: per block
  // at a meeting
  std::unique_ptr<RankProcess> process;
  bool arrived = false;
  const GateTable* table = nullptr;
  std::optional<OutOfMemory> event;
  std::vector<std::pair<int, double>> gate_loads;  // (micro-batch, max over mean rows)
  RowsInFlight rows_in_flight;
  Offer offer;
  std::vector<Offer> offers;
  device::Interval interval{};
  std::map<std::pair<int, int>, Seconds> arrivals;  // of rows sent, by (micro-batch, block)
  std::array<Seconds, parameter_group_count> gradients_arrive;
};

}  // namespace spillway
