#include "run/executor.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "device/collectives.hpp"
#include "device/fault.hpp"
#include "run/work_scope.hpp"

namespace spillway {

Executor::Executor(Setup setup, Engine& engine, StepPlan& plan, device::Clock& clock)
    : setup_(setup),
      engine_(engine),
      plan_(plan),
      order_(plan),
      timer_(clock, stream_),
      operators_({setup.run_case, setup.routing, setup.node_of_rank, setup.checks_order}, engine, plan.blocks(),
                 timer_),
      gradients_(engine, timer_, plan),
      books_(setup.run_case.memory.alignment, setup.run_case.machine.shared_memory) {
  books_.add_static(plan.elements(), setup.run_case.model.bytes_per_element);
}

IterationOutcome Executor::run(std::int64_t iteration, std::int64_t step) {
  timer_.begin_iteration();
  event_.reset();
  draining_ = false;
  rows_in_flight_ = {};
  previous_message_.clear();
  operators_.begin_iteration(iteration);
  gradients_.begin_iteration();
  MPI_Barrier(engine_.communicators.world.comm());
  engine_.activations.settle();
  timer_.clock().restart();
  if (TimelineRecorder* recorder = timer_.recorder())
    recorder->begin(engine_.arena.ledger(),
                    setup_.run_case.machine.shared_memory ? nullptr : &engine_.host_arena.ledger());

  clear_gradients(engine_, timer_);
  for (decide([&] { order_.begin_iteration(iteration); }); !order_.finished(); decide([&] { order_.advance(); }))
    carry_out(order_.current());
  if (!draining_ && !gradients_.buffers_fit()) lose("gradient_reduction");
  for (const device::Event& message : sent_) message.wait();
  sent_.clear();
  gradients_.settle();

  IterationOutcome outcome;
  outcome.record.index = iteration;
  agree(outcome);
  if (outcome.record.completed()) {
    gradients_.finish();
    apply_optimizer(engine_, timer_, setup_.run_case.training, step);
    add_gradient_step(books_.ledger(), plan_.elements());
  }
  timer_.end_iteration();
  outcome.mine = timer_.totals();
  double end = timer_.clock().now().value;
  MPI_Allreduce(MPI_IN_PLACE, &end, 1, MPI_DOUBLE, MPI_MAX, engine_.communicators.world.comm());
  outcome.record.seconds = Seconds(end);
  if (outcome.record.completed()) check_conservation(outcome);
  return outcome;
}

void Executor::carry_out(WorkStep step) {
  const auto [item, instruction, part, first, last, is_gate, hides_reductions, gradients_final] = step;
  const int mb = item.micro_batch, b = item.block;
  if (hides_reductions && gradients_.carry_on(*hides_reductions, draining_)) operators_.note_reductions();
  if (gradients_final) {
    gradients_.gradients_are_final(b);
    if (device::injected(device::Fault::late_loss) && engine_.communicators.world.rank() == 0) {
      device::injected_fault = device::Fault::none;
      if (!draining_) lose("late_loss");
    }
  }
  if (instruction == nullptr) return carry_out_message(item);
  if (first && item.kind != Item::Kind::reload) {
    const bool forward = item.kind == Item::Kind::forward;
    device::reach(forward ? device::Phase::forward : device::Phase::backward);
    finish_receive({mb, b, forward ? Tensor::block_input : Tensor::d_residual});
  }
  if (is_gate) operators_.announce(plan_.offer(mb, b));
  carry_out(mb, b, *instruction, part);
  if (is_gate) {
    decide([&] { order_.gate(operators_.gate(mb, b)); });
    operators_.cut(mb, b, plan_.mitigations(mb, b).tiles_per_slice, static_cast<int>(plan_.rows(mb, b).slices.size()));
  }
  if (last && item.kind != Item::Kind::reload) rows_in_flight_.pass_done(plan_, item);
}

void Executor::carry_out_message(const Item& item) {
  const int mb = item.micro_batch, b = item.block;
  const device::Communicators& groups = engine_.communicators;
  const MessageEnd end = message_end(item);
  switch (item.kind) {
    case Item::Kind::receive_input:
      allocate(mb, b, Tensor::block_input, "pipeline_receive");
      return receive(groups.pipeline_forward, end, {mb, b, Tensor::block_input});
    case Item::Kind::receive_gradient:
      allocate(mb, b, Tensor::d_residual, "pipeline_receive");
      return receive(groups.pipeline_backward, end, {mb, b, Tensor::d_residual});
    case Item::Kind::barrier:
      return timer_.barrier();
    case Item::Kind::send_output:
      return send(groups.pipeline_forward, end, {mb, b, Tensor::block_output});
    default:
      return send(groups.pipeline_backward, end, {mb, b, Tensor::d_residual});
  }
}

template <class Decision>
void Executor::decide(const Decision& decision) {
  const auto begun = std::chrono::steady_clock::now();
  decision();
  timer_.totals().decision_seconds +=
      Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
}

void Executor::carry_out(int micro_batch, int block, const Instruction& instruction, Part part) {
  if (setup_.watchdog != nullptr) setup_.watchdog->touch(name(instruction).data());
  const WorkScope scope(timer_, work_label(instruction, micro_batch, plan_.blocks()[block]));
  const bool runs = instruction.action == Action::run;
  const BlockContext& context = plan_.blocks()[block].context;
  const ExpertRows& rows = plan_.rows(micro_batch, block).of(instruction);
  const device::TensorKey subject{micro_batch, block, instruction.subject};
  if (runs && part != Part::end)
    for (const Tensor t : instruction.allocate)
      if (!draining_ && !allocate(micro_batch, block, t, name(instruction), rows)) break;
  if (!draining_ && !runs && instruction.action != Action::drop && !move(subject, instruction)) lose(name(instruction));
  if (draining_) {
    if (runs && part != Part::end) operators_.drain(micro_batch, block, instruction);
    return;
  }
  if (runs) operators_.run(micro_batch, block, instruction, rows, part);
  if (part == Part::begin) return;
  if (runs || instruction.action == Action::drop || instruction.action == Action::quantize)
    for (const Tensor t : instruction.release) engine_.activations.release({micro_batch, block, t});
  if (!runs) books_.open(instruction, context, rows);
  books_.close(instruction, context, rows);
}

bool Executor::move(const device::TensorKey& key, const Instruction& instruction) {
  device::ActivationStore& store = engine_.activations;
  const Category where = category(key.tensor, plan_.blocks()[key.block].context);
  switch (instruction.action) {
    case Action::offload:
      if (!store.offload(key, where)) return false;
      timer_.copying(device::CopyLane::out, store.copy(key));
      return true;
    case Action::reload:
      if (!store.reload(key, where)) return false;
      timer_.copying(device::CopyLane::in, store.copy(key));
      return true;
    case Action::quantize:
      if (!store.allocate_small(key, where)) return false;
      operators_.cast(key.micro_batch, key.block, instruction);
      return true;
    case Action::dequantize:
      if (!store.allocate_again(key, where)) return false;
      operators_.cast(key.micro_batch, key.block, instruction);
      store.release_small(key);
      return true;
    default:
      return true;
  }
}

bool Executor::allocate(int micro_batch, int block, Tensor tensor, std::string_view for_whom, const ExpertRows& rows) {
  if (draining_) return false;
  const BlockContext& context = plan_.blocks()[block].context;
  if (!engine_.activations.allocate({micro_batch, block, tensor}, extent(tensor, context, rows),
                                    category(tensor, context))) {
    lose(for_whom);
    return false;
  }
  books_.add(tensor, context, rows);
  return true;
}

void Executor::lose(std::string_view operator_name) {
  timer_.draining();
  event_ = OutOfMemory{engine_.communicators.world.rank(), timer_.clock().now(), std::string(operator_name)};
  start_draining();
}

void Executor::start_draining() {
  draining_ = true;
  operators_.finish_messages();
  for (const Receiving& r : receiving_) r.message.event.wait();
  receiving_.clear();
  engine_.activations.clear();
  books_.drop_activations();
}

MessageEnd Executor::message_end(const Item& item) const {
  const PipelinePlace here{engine_.communicators.here.pipeline, engine_.grid.pipeline(), plan_.micro_batches()};
  return spillway::message_end(item, plan_.blocks()[item.block].chunk, here);
}

std::int64_t Executor::message_number(const device::Group& group, int sender, int tag) const {
  const std::int64_t tags = std::int64_t{plan_.micro_batches()} * (plan_.blocks().back().chunk + 2);
  const int direction = &group == &engine_.communicators.pipeline_forward ? 0 : 1;
  return (std::int64_t{2} * group.world_ranks()[static_cast<std::size_t>(sender)] + direction) * tags + tag;
}

WorkLabel Executor::receive_label(device::TensorKey key) const {
  return {"receive", name(key.tensor), WorkKind::pipeline, key.micro_batch, plan_.blocks()[key.block].layer};
}

void Executor::receive(const device::Group& group, const MessageEnd& from, device::TensorKey key) {
  const WorkScope scope(timer_, receive_label(key));
  const Extent e = extent(key.tensor, plan_.blocks()[key.block].context, {});
  scratch_.resize(draining_ ? e.rows * e.cols : 0);
  const device::Matrix<float> into =
      draining_ ? device::Matrix<float>{scratch_.data(), e.rows, e.cols} : engine_.activations.get(key);
  const device::Arrival message = device::receive(engine_.network, group, from.stage, from.tag, into);
  receiving_.push_back({key, message, message_number(group, from.stage, from.tag)});
  if (timer_.clock().is_virtual() || draining_) finish_receive(key);
}

void Executor::finish_receive(device::TensorKey key) {
  const auto same = [key](const Receiving& r) {
    return r.key.micro_batch == key.micro_batch && r.key.block == key.block && r.key.tensor == key.tensor;
  };
  const auto found = std::ranges::find_if(receiving_, same);
  if (found == receiving_.end()) return;
  const Receiving received = *found;
  receiving_.erase(found);
  const WorkScope scope(timer_, receive_label(key));
  received.message.event.wait();
  const Seconds arrival = received.message.event.ran().end;
  timer_.received(received.number, arrival);
  timer_.waits_for(LaneTimer::Waits::pipeline);
  if (!draining_ && received.message.header->draining != 0) {
    timer_.draining();
    start_draining();
  }
  if (draining_) return;
  engine_.activations.set_ready(key, arrival);
  if (device::injected(device::Fault::stale_buffer)) {
    const device::Matrix<float> into = engine_.activations.get(key);
    std::vector<float> now(into.data, into.data + into.size());
    if (previous_message_.size() == now.size())
      std::copy(previous_message_.begin(), previous_message_.end(), into.data);
    previous_message_ = std::move(now);
  }
}

void Executor::send(const device::Group& group, const MessageEnd& to, device::TensorKey key) {
  const BlockContext& context = plan_.blocks()[key.block].context;
  const WorkScope scope(timer_, {"send", name(key.tensor), WorkKind::pipeline, key.micro_batch,
                                 plan_.blocks()[key.block].layer});
  const std::int64_t number = message_number(group, group.rank(), to.tag);
  device::PipelineMessage message{to.stage, to.tag, {}, draining_};
  Seconds ready;
  if (draining_) {
    const Extent e = extent(key.tensor, context, {});
    const auto zeros = std::make_shared<std::vector<float>>(e.rows * e.cols);
    message.matrix = {zeros->data(), e.rows, e.cols};
    message.memory = zeros;
  } else {
    message.matrix = engine_.activations.get(key);
    ready = engine_.activations.ready(key);
  }
  const device::Event event = device::send(engine_.network, group, message, ready);
  timer_.sent(event, number);
  sent_.push_back(event);
  if (draining_) return;
  engine_.activations.release_when(key, [event] { return event.done(); });
  books_.remove(key.tensor, context, {});
}

/// All ranks agree on the earliest event, the loss and the loads.
void Executor::agree(IterationOutcome& outcome) {
  const MPI_Comm world = engine_.communicators.world.comm();
  struct {
    double seconds;
    int rank;
  } earliest{event_ ? event_->seconds.value : INFINITY, engine_.communicators.world.rank()};
  MPI_Allreduce(MPI_IN_PLACE, &earliest, 1, MPI_DOUBLE_INT, MPI_MINLOC, world);
  if (std::isfinite(earliest.seconds)) {
    std::array<char, 64> text{};
    if (event_) std::strncpy(text.data(), event_->operator_name.c_str(), text.size() - 1);
    MPI_Bcast(text.data(), static_cast<int>(text.size()), MPI_CHAR, earliest.rank, world);
    outcome.record.oom = OutOfMemory{earliest.rank, Seconds(earliest.seconds), text.data()};
    if (!draining_) start_draining();
  } else {
    double loss = operators_.loss();
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, world);
    // Every tensor- and data-parallel rank of the last stage adds its own tokens' share.
    outcome.record.loss = loss;
    if (!std::isfinite(loss))
      outcome.faults.push_back(fmt::format("iteration {}: the loss is not finite", outcome.record.index));
  }
  count_loads(outcome);
}

void Executor::count_loads(IterationOutcome& outcome) {
  const MPI_Comm world = engine_.communicators.world.comm();
  const int micro_batches = static_cast<int>(setup_.run_case.training.micro_batches);
  std::vector<double> sum(micro_batches, 0);
  std::vector<int> count(micro_batches, 0);
  // [overload sum, factors, imbalance sum, micro-batches with experts] and [overload max, imbalance max, cumulative max]
  double sums[4] = {0, 0, 0, 0}, maxima[3] = {0, 1, rows_in_flight_.peak_over_balance()};
  for (const auto& [mb, load] : operators_.gate_loads()) {
    sum[mb] += load.max_over_mean;
    ++count[mb];
    if (engine_.communicators.expert_forward.rank() == 0) {
      sums[0] += load.max_over_mean;
      sums[1] += 1;
    }
    maxima[0] = std::max(maxima[0], load.max_over_mean);
  }
  for (int mb = 0; mb < micro_batches; ++mb) {
    if (count[mb] == 0) continue;
    const double imbalance = sum[mb] / count[mb];
    maxima[1] = std::max(maxima[1], imbalance);
    if (engine_.communicators.expert_forward.rank() == 0) {
      sums[2] += imbalance;
      sums[3] += 1;
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, sums, 4, MPI_DOUBLE, MPI_SUM, world);
  MPI_Allreduce(MPI_IN_PLACE, maxima, 3, MPI_DOUBLE, MPI_MAX, world);
  IterationRecord& r = outcome.record;
  r.overload_sum = sums[0];
  r.overload_count = static_cast<std::int64_t>(sums[1]);
  r.overload_max = maxima[0];
  r.imbalance = maxima[1];
  r.imbalance_mean = sums[3] > 0 ? sums[2] / sums[3] : 1;
  r.overload_max_cum = maxima[2];
}

/// Every token's router weights add up to 1, so the weights of all rows received anywhere add up to the tokens sent.
void Executor::check_conservation(IterationOutcome& outcome) {
  // [router weights received, tokens sent, ranks whose gradients hold an infinity or no number]
  double sums[3] = {operators_.conservation().weight, static_cast<double>(operators_.conservation().tokens),
                    gradients_finite(engine_) ? 0.0 : 1.0};
  MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_DOUBLE, MPI_SUM, engine_.communicators.world.comm());
  const bool weights_travel = !plan_.blocks().front().context.weights_at_combine();
  if (sums[2] > 0) {
    outcome.faults.push_back(
        fmt::format("iteration {}: gradients of {:.0f} ranks are not finite", outcome.record.index, sums[2]));
  } else if (weights_travel && std::abs(sums[0] - sums[1]) > 1e-5 * sums[1]) {
    outcome.faults.push_back(
        fmt::format("iteration {}: {} tokens went through gates, but the router weights that arrived with "
                    "their rows add up to {}",
                    outcome.record.index, sums[1], sums[0]));
  }
  std::uint64_t checksum = gradient_checksum(engine_);
  MPI_Allreduce(MPI_IN_PLACE, &checksum, 1, MPI_UINT64_T, MPI_SUM, engine_.communicators.world.comm());
  outcome.record.gradient_checksum = checksum;
}

}  // namespace spillway
