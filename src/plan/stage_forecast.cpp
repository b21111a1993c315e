#include "plan/stage_forecast.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/static_plan.hpp"
#include "plan/schedule/schedule_table.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

BlockRows received(const StageBlock& block, std::int64_t rows) {
  const std::int64_t experts = block.context.local_experts();
  return {experts == 0 ? ExpertRows{} : ExpertRows{rows, experts, {}}, {}};
}

ByteLedger static_memory(const StageLayout& layout, Bytes alignment) {
  ByteLedger ledger(alignment);
  add_static_memory(ledger, layout.elements, layout.blocks[0].context.shape.bytes_per_element);
  return ledger;
}

/// Static memory and the buffer of the gradient reduction: the least of any peak.
Bytes peak_without_activations(const StageLayout& layout, Bytes alignment) {
  ByteLedger ledger = static_memory(layout, alignment);
  add_gradient_step(ledger, layout.elements);
  return ledger.peak();
}

}  // namespace

bool follows_load(const Policy& policy) {
  const bool planned = dynamic_cast<const StaticPlanner*>(&policy) != nullptr;
  return policy.adapts() || (policy.plans_for_load() && !planned);
}

StageLayout stage_layout(const MemorySetup& setup, int stage) {
  const auto blocks = stage_blocks(setup.stage, stage);
  return {blocks, rank_elements(blocks, Grid(setup.stage.grid), setup.stage.overlap_gradients),
          find_schedule(setup.order).make(setup.schedule())[stage]};
}

bool fits(const MemoryPeak& peak, const StageLimits& limits) {
  return peak.device <= limits.cap && peak.host <= limits.host_cap;
}

StageForecast::StageForecast(const MemorySetup& setup, int stage, const PolicyEntry& policy)
    : layout_(stage_layout(setup, stage)),
      policy_(policy.make(setup.options)),
      follows_load_(follows_load(*policy_)),
      plan_({layout_.blocks, layout_.order, layout_.elements, setup.limits, setup.machine, setup.margin}, *policy_) {
  for (std::size_t t = 0; t < layout_.order.size(); ++t)
    for (const Item& item : task_script(layout_.order, t, layout_.blocks)) script_.push_back(item);
}

void StageForecast::decide(std::int64_t rows) {
  if (decided_ && (!follows_load_ || *decided_ == rows)) return;
  decided_ = rows;
  if (follows_load_) {
    forecast_memory(plan_, [rows](int, const StageBlock& block) { return received(block, rows).whole; });
    return;
  }
  for (plan_.begin_iteration(0); !plan_.finished(); plan_.advance())
    if (plan_.current().kind == Kind::forward) plan_.decide(plan_.current().micro_batch, plan_.current().block);
}

/// Slices follow from a gate table, which the plan has.
BlockRows StageForecast::rows_of(const Item& item, std::int64_t rows) const {
  if (follows_load_) return plan_.rows(item.micro_batch, item.block);
  return received(layout_.blocks[item.block], rows);
}

const BlockProgram& StageForecast::program(int block) const { return plan_.program(plan_.micro_batches() / 2, block); }

Books StageForecast::books(std::int64_t rows) {
  decide(rows);
  Books books(plan_.limits().alignment, plan_.limits().shared_memory);
  books.add_static(layout_.elements, layout_.blocks[0].context.shape.bytes_per_element);
  for (const Item& item : script_) {
    const StageBlock& block = layout_.blocks[item.block];
    const BlockProgram& program = plan_.program(item.micro_batch, item.block);
    const BlockRows all_rows = rows_of(item, rows);
    const auto run = [&](const std::vector<Instruction>& instructions) {
      for (const Instruction& i : instructions) {
        books.open(i, block.context, all_rows.of(i));
        books.close(i, block.context, all_rows.of(i));
      }
    };
    if (item.kind == Kind::receive_input) books.add(Tensor::block_input, block.context, {});
    if (item.kind == Kind::receive_gradient) books.add(Tensor::d_residual, block.context, {});
    if (item.kind == Kind::send_output) books.remove(Tensor::block_output, block.context, {});
    if (item.kind == Kind::send_gradient) books.remove(Tensor::d_residual, block.context, {});
    if (item.kind == Kind::forward) run(program.forward);
    if (item.kind == Kind::reload) run(program.reloads);
    if (item.kind == Kind::backward) run(program.backward);
  }
  add_gradient_step(books.ledger(), layout_.elements);
  return books;
}

MemoryPeak StageForecast::peak(std::int64_t rows) {
  decide(rows);
  const Bytes alignment = plan_.limits().alignment;
  std::map<const BlockProgram*, Footprint> footprints;  // a program belongs to blocks that are alike
  const auto footprint_of = [&](const Item& item) -> const Footprint& {
    const StageBlock& block = layout_.blocks[item.block];
    const BlockProgram& program = plan_.program(item.micro_batch, item.block);
    auto found = footprints.find(&program);
    if (found == footprints.end()) {
      const FootprintSetting setting = footprint_setting(block.kind, block.context, alignment);
      found = footprints.emplace(&program, footprint(program, setting, rows_of(item, rows))).first;
    }
    return found->second;
  };
  StageMemory memory = plan_.memory();
  MemoryPeak peak{peak_without_activations(layout_, alignment), {}};
  for (memory.restart(); !memory.finished(); memory.advance()) {
    const Item& item = memory.current();
    memory.decide(item.micro_batch, item.block, footprint_of(item));
    peak.host = std::max(peak.host, memory.host_level());
  }
  peak.device = std::max(peak.device, memory.forecast());
  return peak;
}

Bytes least_bytes(const MemorySetup& setup, int stage) {
  const StageLayout layout = stage_layout(setup, stage);
  std::vector<Footprint> least;
  for (const StageBlock& block : layout.blocks) least.push_back(least_footprint(block, setup.limits.alignment));
  const StageMemory memory({layout.blocks, layout.order, static_memory(layout, setup.limits.alignment).live(),
                            setup.limits.cap, setup.limits.host_cap, std::move(least)});
  return std::max(peak_without_activations(layout, setup.limits.alignment), memory.forecast());
}

}  // namespace spillway
