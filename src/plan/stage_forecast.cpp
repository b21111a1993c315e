#include "plan/stage_forecast.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/policy/least.hpp"
#include "plan/schedule/interleaved.hpp"

namespace spillway {
namespace {

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

ExpertRows received(const StageBlock& block, std::int64_t rows) {
  const std::int64_t experts = block.context.local_experts();
  return experts == 0 ? ExpertRows{} : ExpertRows{rows, experts, {}};
}

/// The tasks of one chunk, as if the stage had no other.
std::vector<Task> tasks_of(const std::vector<Task>& order, int chunk) {
  std::vector<Task> own;
  for (const Task& t : order)
    if (t.chunk == chunk) own.push_back({t.kind, t.micro_batch, 0});
  return own;
}

void reduce_gradients(Books& books, const RankElements& elements) {
  for (const GroupElements& group : elements) {
    books.ledger().add(Category::communication, reduction_buffer(group));
    books.ledger().remove(Category::communication, reduction_buffer(group));
  }
}

}  // namespace

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

StageForecast::StageForecast(const MemorySetup& setup, int stage, const PolicyEntry& policy)
    : layout_(stage_layout(setup, stage)), limits_(setup.limits) {
  plans_.reserve(layout_.chunks.size());
  for (std::size_t c = 0; c < layout_.chunks.size(); ++c) {
    policies_.push_back(policy.make(setup.options));
    plans_.emplace_back(StepPlan::Setup{layout_.chunks[c], tasks_of(layout_.order, static_cast<int>(c)),
                                        layout_.elements, limits_, setup.machine, setup.margin},
                        *policies_.back());
  }
}

Books StageForecast::at(std::int64_t rows) {
  const RowsOf everywhere = [rows](int, const StageBlock& block) { return received(block, rows); };
  return plans_.size() == 1 ? forecast_memory(plans_[0], everywhere) : forecast_chunks(plans_, layout_, everywhere);
}

Books forecast_chunks(std::vector<StepPlan>& plans, const StageLayout& layout, const RowsOf& rows) {
  const StageLimits& limits = plans[0].limits();
  for (StepPlan& plan : plans) forecast_memory(plan, rows);
  Books books(limits.alignment, limits.shared_memory);
  add_static_memory(books.ledger(), layout.elements, plans[0].blocks()[0].context.shape.bytes_per_element);
  for (const Task& task : layout.order) {
    const StepPlan& plan = plans[task.chunk];
    const auto blocks = plan.blocks();
    const int mb = task.micro_batch, last = static_cast<int>(blocks.size()) - 1;
    const auto run = [&](const std::vector<Instruction>& instructions, int b) {
      for (const Instruction& i : instructions) {
        books.open(i, blocks[b].context, plan.rows(mb, b).of(i));
        books.close(i, blocks[b].context, plan.rows(mb, b).of(i));
      }
    };
    if (task.kind == Task::Kind::forward) {
      if (receives_input(blocks)) books.add(Tensor::block_input, blocks[0].context, {});
      for (int b = 0; b <= last; ++b) run(plan.program(mb, b).forward, b);
      if (sends_output(blocks)) books.remove(Tensor::block_output, blocks[last].context, {});
    } else {
      run(plan.program(mb, last).reloads, last);
      if (sends_output(blocks)) books.add(Tensor::d_residual, blocks[last].context, {});
      for (int b = last; b >= 0; --b) {
        if (b > 0) run(plan.program(mb, b - 1).reloads, b - 1);
        run(plan.program(mb, b).backward, b);
      }
      if (receives_input(blocks)) books.remove(Tensor::d_residual, blocks[0].context, {});
    }
  }
  reduce_gradients(books, layout.elements);
  return books;
}

Bytes least_bytes(const MemorySetup& setup, int stage) {
  const StageLayout layout = stage_layout(setup, stage);
  std::vector<std::vector<Footprint>> least;
  for (const auto& blocks : layout.chunks) {
    auto& list = least.emplace_back();
    for (const StageBlock& block : blocks) list.push_back(least_footprint(block, setup.limits.alignment));
  }
  ByteLedger fixed(setup.limits.alignment);
  add_static_memory(fixed, layout.elements, setup.stage.shape.bytes_per_element);
  for (const GroupElements& group : layout.elements) {
    fixed.add(Category::communication, reduction_buffer(group));
    fixed.remove(Category::communication, reduction_buffer(group));
  }
  Bytes level = fixed.live(), peak = fixed.peak();
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

bool fits(const Books& books, const StageLimits& limits) {
  return books.ledger().peak() <= limits.cap && books.host().peak() <= limits.host_cap;
}

}  // namespace spillway
