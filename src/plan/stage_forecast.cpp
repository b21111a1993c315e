#include "plan/stage_forecast.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/policy/least.hpp"
#include "plan/policy/static_plan.hpp"
#include "plan/schedule/interleaved.hpp"

namespace spillway {
namespace {

using Kind = Item::Kind;

/// The pipeline that a micro-batch sees: every model chunk as a stage of its own.
StageSetup virtual_stages(const MemorySetup& setup) {
  StageSetup s = setup.stage;
  if (setup.chunks == 1) return s;
  const auto& layers = s.layers_of_stages;
  const bool equal = std::all_of(layers.begin(), layers.end(),
                                 [&](std::int64_t n) { return n == layers[0] && n % setup.chunks == 0; });
  ensure(equal, "{} chunks of {} layers are not equal", setup.chunks, layers[0]);
  s.layers_of_stages.assign(layers.size() * setup.chunks, layers[0] / setup.chunks);
  s.grid.pipeline_parallel *= setup.chunks;
  return s;
}

BlockRows received(const StageBlock& block, std::int64_t rows) {
  const std::int64_t experts = block.context.local_experts();
  return {experts == 0 ? ExpertRows{} : ExpertRows{rows, experts, {}}, {}};
}

/// The tasks of one chunk, as if the stage had no other.
std::vector<Task> tasks_of(const std::vector<Task>& order, int chunk) {
  std::vector<Task> own;
  for (const Task& t : order)
    if (t.chunk == chunk) own.push_back({t.kind, t.micro_batch, 0});
  return own;
}

ByteLedger static_memory(const StageLayout& layout, Bytes alignment) {
  ByteLedger ledger(alignment);
  add_static_memory(ledger, layout.elements, layout.chunks[0][0].context.shape.bytes_per_element);
  return ledger;
}

/// Static memory and the buffer of the gradient reduction: the least of any peak.
Bytes peak_without_activations(const StageLayout& layout, Bytes alignment) {
  ByteLedger ledger = static_memory(layout, alignment);
  for (const GroupElements& group : layout.elements) {
    ledger.add(Category::communication, reduction_buffer(group));
    ledger.remove(Category::communication, reduction_buffer(group));
  }
  return ledger.peak();
}

}  // namespace

bool follows_load(const Policy& policy) {
  const bool planned = dynamic_cast<const StaticPlanner*>(&policy) != nullptr;
  return policy.adapts() || (policy.plans_for_load() && !planned);
}

StageLayout stage_layout(const MemorySetup& setup, int stage) {
  const StageSetup pieces = virtual_stages(setup);
  const int stages = setup.stage.grid.pipeline_parallel;
  StageLayout layout;
  std::vector<StageBlock> all;
  for (int chunk = 0; chunk < setup.chunks; ++chunk) {
    layout.chunks.push_back(stage_blocks(pieces, chunk * stages + stage));
    all.insert(all.end(), layout.chunks.back().begin(), layout.chunks.back().end());
  }
  layout.elements = rank_elements(all, Grid(setup.stage.grid));
  layout.order = interleaved_order(setup.schedule(), stage);
  return layout;
}

bool fits(const MemoryPeak& peak, const StageLimits& limits) {
  return peak.device <= limits.cap && peak.host <= limits.host_cap;
}

StageForecast::StageForecast(const MemorySetup& setup, int stage, const PolicyEntry& policy)
    : layout_(stage_layout(setup, stage)),
      limits_(setup.limits),
      follows_load_(follows_load(*policy.make(setup.options))) {
  plans_.reserve(layout_.chunks.size());
  for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
    policies_.push_back(policy.make(setup.options));
    plans_.emplace_back(StepPlan::Setup{layout_.chunks[c], tasks_of(layout_.order, static_cast<int>(c)),
                                        layout_.elements, limits_, setup.machine, setup.margin},
                        *policies_.back());
  }
  script_ = script();
}

void StageForecast::decide(std::int64_t rows) {
  if (decided_ && (!follows_load_ || *decided_ == rows)) return;
  decided_ = rows;
  for (StepPlan& plan : plans_) {
    if (follows_load_) {
      forecast_memory(plan, [rows](int, const StageBlock& block) { return received(block, rows).whole; });
      continue;
    }
    for (plan.begin_iteration(0); !plan.finished(); plan.advance())
      if (plan.current().kind == Kind::forward) plan.decide(plan.current().micro_batch, plan.current().block);
  }
}

/// Slices follow from a gate table, which the plan has.
BlockRows StageForecast::rows_of(const Step& step, std::int64_t rows) const {
  if (follows_load_) return plans_[step.chunk].rows(step.item.micro_batch, step.item.block);
  return received(layout_.chunks[step.chunk][step.item.block], rows);
}

const BlockProgram& StageForecast::program(int chunk, int block) const {
  return plans_[chunk].program(plans_[chunk].micro_batches() / 2, block);
}

/// With one chunk the stage's own script; with several, the items of each task's chunk in turn, where tensors come back
/// from the host tier just before the block that needs them.
std::vector<StageForecast::Step> StageForecast::script() const {
  std::vector<Step> steps;
  for (std::size_t t = 0; t < layout_.order.size(); ++t) {
    const Task& task = layout_.order[t];
    const bool alone = layout_.chunks.size() == 1;
    const std::vector<Task> one = {task};
    const auto items =
        alone ? task_script(layout_.order, t, layout_.chunks[0]) : task_script(one, 0, layout_.chunks[task.chunk]);
    for (const Item& item : items) steps.push_back({item, task.chunk});
  }
  return steps;
}

Books StageForecast::books(std::int64_t rows) {
  decide(rows);
  Books books(limits_.alignment, limits_.shared_memory);
  add_static_memory(books.ledger(), layout_.elements, layout_.chunks[0][0].context.shape.bytes_per_element);
  for (const Step& step : script_) {
    const Item& item = step.item;
    const StageBlock& block = layout_.chunks[step.chunk][item.block];
    const BlockProgram& program = plans_[step.chunk].program(item.micro_batch, item.block);
    const BlockRows all_rows = rows_of(step, rows);
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
  for (const GroupElements& group : layout_.elements) {
    books.ledger().add(Category::communication, reduction_buffer(group));
    books.ledger().remove(Category::communication, reduction_buffer(group));
  }
  return books;
}

MemoryPeak StageForecast::peak(std::int64_t rows) {
  decide(rows);
  std::map<const BlockProgram*, Footprint> footprints;  // a program belongs to one block
  Bytes level = static_memory(layout_, limits_.alignment).live(), host;
  MemoryPeak peak{peak_without_activations(layout_, limits_.alignment), {}};
  for (const Step& step : script_) {
    const Item& item = step.item;
    const StageBlock& block = layout_.chunks[step.chunk][item.block];
    const BlockProgram& program = plans_[step.chunk].program(item.micro_batch, item.block);
    auto found = footprints.find(&program);
    if (found == footprints.end()) {
      const FootprintSetting setting = footprint_setting(block.kind, block.context, limits_.alignment);
      found = footprints.emplace(&program, footprint(program, setting, rows_of(step, rows))).first;
    }
    const Footprint& f = found->second;
    if (item.kind == Kind::forward) {
      peak.device = std::max(peak.device, level + f.forward);
      level += f.held;
      host += f.host;
    } else if (item.kind == Kind::reload) {
      level += f.reloaded;
      peak.device = std::max(peak.device, level);
      host -= f.host;
    } else if (item.kind == Kind::backward) {
      level -= f.held + f.reloaded;
      peak.device = std::max(peak.device, level + f.backward);
    }
    peak.host = std::max(peak.host, host);
  }
  return peak;
}

Bytes least_bytes(const MemorySetup& setup, int stage) {
  const StageLayout layout = stage_layout(setup, stage);
  std::vector<std::vector<Footprint>> least;
  for (const auto& blocks : layout.chunks) {
    auto& list = least.emplace_back();
    for (const StageBlock& block : blocks) list.push_back(least_footprint(block, setup.limits.alignment));
  }
  Bytes level = static_memory(layout, setup.limits.alignment).live();
  Bytes peak = peak_without_activations(layout, setup.limits.alignment);
  for (const Task& task : layout.order) {
    const auto& blocks = least[task.chunk];
    if (task.kind == Task::Kind::forward) {
      for (const Footprint& f : blocks) {
        peak = std::max(peak, level + f.forward);
        level += f.held;
      }
    } else {
      for (auto f = blocks.rbegin(); f != blocks.rend(); ++f) {
        level -= f->held;
        peak = std::max(peak, level + f->backward);
      }
    }
  }
  return peak;
}

}  // namespace spillway
