#include "plan/step_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/together.hpp"
#include "plan/work_order.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway {
namespace {

StageMemory memory_of(const StepPlan::Setup& s) {
  ByteLedger fixed(s.limits.alignment);
  add_static_memory(fixed, s.elements, s.blocks[0].context.shape.bytes_per_element);
  std::vector<Footprint> least;
  for (const StageBlock& b : s.blocks) least.push_back(least_footprint(b, s.limits.alignment));
  // Where the host tier shares the device's memory, offloading frees nothing: nobody gets room there.
  const Bytes host = s.limits.shared_memory ? Bytes(0) : s.limits.host_cap;
  return StageMemory({s.blocks, s.order, fixed.live(), s.limits.cap, host, std::move(least)});
}

/// Settles which blocks hold what only a tensor-parallel collective could bring back; `least`: the peak if none does.
StageMemory stage_memory(StepPlan::Setup& s, Bytes& least) {
  StageMemory memory = memory_of(s);
  least = memory.forecast();
  if (s.blocks[0].context.tensor_parallel == 1) return memory;
  for (hold_all(s.blocks);;) {
    memory = memory_of(s);
    if (memory.forecast() <= s.limits.cap || !give_up_next(s.blocks)) return memory;
  }
}

int count_micro_batches(std::span<const Task> order) {
  int count = 0;
  for (const Task& t : order) count = std::max(count, t.micro_batch + 1);
  return count;
}

/// A gate table in which the first member receives `rows` and the others share the rest evenly.
GateTable table_with_load(const BlockContext& c, std::int64_t rows) {
  GateTable t{std::vector<std::int64_t>(static_cast<std::size_t>(c.expert_parallel * c.shape.num_experts)),
              c.expert_parallel, c.shape.num_experts};
  const std::int64_t local = c.local_experts(), others = t.experts - local;
  const auto share = [](std::int64_t whole, std::int64_t parts, std::int64_t i) {
    return whole / parts + (i < whole % parts ? 1 : 0);
  };
  for (std::int64_t source = 0; source < t.members; ++source) {
    const std::int64_t here = share(rows, t.members, source), rest = std::max<std::int64_t>(0, c.routed_rows() - here);
    for (std::int64_t e = 0; e < t.experts; ++e)
      t.rows[static_cast<std::size_t>(source * t.experts + e)] =
          e < local ? share(here, local, e) : share(rest, others, e - local);
  }
  return t;
}

Bytes small(Tensor t, const BlockContext& c, ExpertRows rows) { return quantized_bytes(extent(t, c, rows).elements()); }

}  // namespace

void Books::open(const Instruction& i, const BlockContext& c, ExpertRows rows) {
  for (const Tensor t : i.allocate) add(t, c, rows);
  if (i.action == Action::offload) (shared_ ? device_ : host_).add(category(i.subject, c), bytes(i.subject, c, rows));
  if (i.action == Action::quantize) device_.add(category(i.subject, c), small(i.subject, c, rows));
}

void Books::close(const Instruction& i, const BlockContext& c, ExpertRows rows) {
  for (const Tensor t : i.release) remove(t, c, rows);
  if (i.action == Action::reload) (shared_ ? device_ : host_).remove(category(i.subject, c), bytes(i.subject, c, rows));
  if (i.action == Action::dequantize) device_.remove(category(i.subject, c), small(i.subject, c, rows));
}

void Books::message(Item::Kind kind, const BlockContext& context) {
  if (kind == Item::Kind::receive_input) add(Tensor::block_input, context, {});
  if (kind == Item::Kind::receive_gradient) add(Tensor::d_residual, context, {});
  if (kind == Item::Kind::send_output) remove(Tensor::block_output, context, {});
  if (kind == Item::Kind::send_gradient) remove(Tensor::d_residual, context, {});
}

void Books::drop_activations() {
  for (ByteLedger* ledger : {&device_, &host_})
    for (std::size_t i = 0; i < category_count; ++i) {
      const auto c = static_cast<Category>(i);
      if (c != Category::parameters && c != Category::gradients && c != Category::optimizer)
        ledger->remove(c, ledger->live(c));
    }
  device_.add(Category::communication, static_communication_);
}

void Books::add_static(const RankElements& elements, std::int64_t bytes_per_element) {
  add_static_memory(device_, elements, bytes_per_element);
  static_communication_ = device_.live(Category::communication);
}

StepPlan::StepPlan(Setup setup, Policy& policy)
    : setup_(std::move(setup)),
      policy_(&policy),
      memory_(stage_memory(setup_, least_)),
      history_(setup_.blocks.size()),
      in_force_(static_cast<std::size_t>(count_micro_batches(setup_.order)) * setup_.blocks.size()) {
  for (const StageBlock& b : setup_.blocks) settled_.push_back(settled_at_gate(b.kind, b.context));
  policy_->prepare({setup_.blocks, setup_.order, memory_, setup_.limits.alignment, setup_.machine, setup_.load});
}

void StepPlan::begin_iteration(std::int64_t iteration) {
  iteration_ = iteration;
  memory_.restart();
  seen_ = 0;
  in_turn_ = false;
  expect_load();
}

Situation StepPlan::situation(int micro_batch, int block, const Budget& budget) const {
  return {setup_.blocks[block], block,    micro_batch, iteration_, memory_, budget, setup_.limits.alignment,
          setup_.machine,       history_, nullptr,     nullptr,    {},      0,      {}};
}

void StepPlan::enforce(int micro_batch, int block, const BlockDecision& d) {
  InForce& mine = in_force(micro_batch, block);
  const CompiledBlock& compiled = programs_.get(block, setup_.blocks[block], setup_.limits.alignment, d);
  mine.program = &compiled.program;
  mine.before = d.before;
  mine.decision = d.after;
  memory_.decide(micro_batch, block, compiled.form.at(mine.rows));
}

const BlockProgram& StepPlan::decide(int micro_batch, int block) {
  const Situation s = situation(micro_batch, block, memory_.budget(micro_batch, block));
  Mitigations chosen = policy_->decide(s);
  chosen.tiles_per_slice = 0;  // slices are decided with the table
  InForce& mine = in_force(micro_batch, block);
  mine.rows = {};
  mine.group_rows = balanced_rows(setup_.blocks[static_cast<std::size_t>(block)].context, 1);
  mine.budget = s.budget;
  enforce(micro_batch, block, BlockDecision(chosen));
  return *mine.program;
}

Footprint StepPlan::footprint_at(std::size_t block, const Mitigations& decision, std::int64_t rows) {
  const StageBlock& b = setup_.blocks[block];
  ExpertRows n = balanced_rows(b.context, 1);
  if (b.kind == BlockKind::moe) n.rows = std::max(n.rows, rows);
  return programs_.get(static_cast<int>(block), b, setup_.limits.alignment, BlockDecision(decision)).form.at({n, {}});
}

void StepPlan::expect_load() {
  const std::int64_t seen = history_.most(micro_batches());
  if (seen != expected_) {
    std::vector<Footprint> all;
    for (std::size_t b = 0; b < setup_.blocks.size(); ++b)
      all.push_back(footprint_at(b, keep_all(setup_.blocks[b]), seen));
    memory_.expect(std::move(all));
    expected_ = seen;
  }
  if (!setup_.may_take_in_turn || seen_ == least_whole_at_) return;
  std::vector<Footprint> least_whole;
  for (std::size_t b = 0; b < setup_.blocks.size(); ++b) {
    const StageBlock& block = setup_.blocks[b];
    least_whole.push_back(block.kind == BlockKind::moe
                              ? footprint_at(b, least_under({}, block, !setup_.limits.shared_memory), seen_)
                              : memory_.least(static_cast<int>(b)));
  }
  memory_.expect_at_least(std::move(least_whole));
  least_whole_at_ = seen_;
}

bool StepPlan::prefers_in_turn() const { return in_turn_ && !memory_.unit().empty(); }

Offer StepPlan::offer(int micro_batch, int block) const {
  const InForce& mine = in_force(micro_batch, block);
  const TensorSet& settled = settled_[static_cast<std::size_t>(block)];
  return {mine.budget, mine.program->offloaded & settled, mine.program->quantized & settled,
          setup_.may_take_in_turn && !memory_.next_unit_has_room()};
}

const BlockProgram& StepPlan::decide_after_gate(int micro_batch, int block, const Gate& gate) {
  InForce& mine = in_force(micro_batch, block);
  const Mitigations before = mine.before;
  DispatchRows dispatch(gate.table);
  const std::vector<ExpertRows>& received = dispatch.whole();
  mine.rows = {received[static_cast<std::size_t>(gate.member)], {}};
  Situation s = situation(micro_batch, block, mine.budget);  // which does not depend on the block's own decision
  mine.group_rows = largest(received);
  s.before = &before;
  s.table = &gate.table;
  s.offers = gate.offers;
  s.member = gate.member;
  s.received = received;
  s.dispatch = &dispatch;
  const Mitigations chosen = policy_->decide(s);
  if (chosen.tiles_per_slice > 0)
    for (const auto& slice : dispatch.in_slices(chosen.tiles_per_slice))
      mine.rows.slices.push_back(slice[static_cast<std::size_t>(gate.member)]);
  enforce(micro_batch, block, {before, chosen, static_cast<int>(mine.rows.slices.size())});
  history_.observe(block, mine.rows.whole);
  seen_ = std::max(seen_, mine.rows.whole.rows);
  expect_load();
  in_turn_ = std::any_of(gate.offers.begin(), gate.offers.end(), [](const Offer& o) { return o.in_turn; });
  return *mine.program;
}

const BlockProgram& StepPlan::decide_at(int micro_batch, int block, ExpertRows rows) {
  const BlockProgram& program = decide(micro_batch, block);
  if (setup_.blocks[block].kind != BlockKind::moe) return program;
  return decide_after_gate_at(micro_batch, block, rows);
}

const BlockProgram& StepPlan::decide_after_gate_at(int micro_batch, int block, ExpertRows rows) {
  const GateTable table = table_with_load(setup_.blocks[block].context, rows.rows);
  const std::vector<Offer> offers(static_cast<std::size_t>(table.members), offer(micro_batch, block));
  decide_after_gate(micro_batch, block, {table, offers, 0});
  in_turn_ = false;  // a forecast fuses all units: what needs most memory
  InForce& mine = in_force(micro_batch, block);
  if (!mine.rows.slices.empty()) return *mine.program;  // the table's rows, for the slices are its
  mine.rows = {rows, {}};
  enforce(micro_batch, block, {mine.before, mine.decision, 0});
  return *mine.program;
}

ExpertRows balanced_rows(const BlockContext& c, double margin) {
  if (c.local_experts() == 0) return {};
  return {static_cast<std::int64_t>(std::ceil(static_cast<double>(c.routed_rows()) * margin)), c.local_experts(), {}};
}

void add_static_memory(ByteLedger& ledger, const RankElements& elements, std::int64_t bytes_per_element) {
  for (const GroupElements& group : elements) {
    if (group.buckets.empty()) continue;
    const StaticBytes bytes = static_bytes(group.padded(), bytes_per_element, group.shards);
    ledger.add(Category::parameters, bytes.parameters);
    ledger.add(Category::gradients, bytes.gradients);
    // The moments are blocks of their own.
    const Bytes half(bytes.optimizer.value / 2);
    ledger.add(Category::optimizer, half);
    ledger.add(Category::optimizer, bytes.optimizer - half);
    if (group.overlapped) ledger.add(Category::communication, reduction_buffer(group));
  }
}

void add_gradient_step(ByteLedger& ledger, const RankElements& elements) {
  for (const GroupElements& group : elements) {
    if (group.overlapped) continue;
    ledger.add(Category::communication, reduction_buffer(group));
    ledger.remove(Category::communication, reduction_buffer(group));
  }
}

Books forecast_memory(StepPlan& plan, const RowsOf& rows) {
  Books books(plan.limits().alignment, plan.limits().shared_memory);
  const auto blocks = plan.blocks();
  books.add_static(plan.elements(), blocks[0].context.shape.bytes_per_element);
  WorkOrder order(plan);
  for (order.begin_iteration(0); !order.finished(); order.advance()) {
    const WorkStep& step = order.current();
    const Item& item = step.item;
    const BlockContext& context = blocks[static_cast<std::size_t>(item.block)].context;
    if (step.instruction == nullptr) {
      books.message(item.kind, context);
      continue;
    }
    const ExpertRows& n = plan.rows(item.micro_batch, item.block).of(*step.instruction);
    books.open(*step.instruction, context, n);
    books.close(*step.instruction, context, n);
    if (step.is_gate) order.gate_at(rows(item.micro_batch, blocks[static_cast<std::size_t>(item.block)]));
  }
  add_gradient_step(books.ledger(), plan.elements());
  return books;
}

}  // namespace spillway
