#include "app/plan_report.hpp"

#include <algorithm>

#include "run/policy_run.hpp"

namespace spillway::app {
namespace {

StaticFacts static_facts(const MemorySetup& setup, int stage) {
  const StageLayout layout = stage_layout(setup, stage);
  const RankElements& elements = layout.elements;
  ByteLedger ledger(setup.limits.alignment);
  add_static_memory(ledger, elements, setup.stage.shape.bytes_per_element);
  StaticFacts facts;
  facts.layers = setup.stage.layers_of_stage(stage);
  facts.live_pairs = peak_live(layout.order);
  facts.live_micro_batches = static_cast<double>(facts.live_pairs) / setup.stage.chunks();
  facts.dense = elements[static_cast<int>(ParameterGroup::dense)].elements() +
                elements[static_cast<int>(ParameterGroup::plane)].elements();
  facts.expert = elements[static_cast<int>(ParameterGroup::expert)].elements();
  facts.parameters = ledger.live(Category::parameters);
  facts.gradients = ledger.live(Category::gradients);
  facts.optimizer = ledger.live(Category::optimizer);
  facts.communication = ledger.live(Category::communication);
  return facts;
}

bool alike(const std::vector<TensorTreatment>& a, const std::vector<TensorTreatment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TensorTreatment& x, const TensorTreatment& y) {
    return x.tensor == y.tensor && x.treatment == y.treatment;
  });
}

std::vector<TreatmentFacts> treatments(const MemorySetup& setup, const MemoryTable& table) {
  std::vector<TreatmentFacts> all;
  for (const PolicyPeaks& policy : table.policies) {
    const std::vector<double> asked = policy.follows_load ? table.axis.loads : std::vector{1.0};
    for (const double load : asked) {
      auto tensors = chosen_treatments(setup, policy, load);
      if (tensors.empty()) continue;
      if (!all.empty() && all.back().policy == policy.policy.name && alike(all.back().tensors, tensors))
        all.back().load_to = load;
      else
        all.push_back({std::string(policy.policy.name), policy.follows_load, load, load, std::move(tensors)});
    }
  }
  return all;
}

/// All but those that carry out what others have decided: replay and hindsight.
std::vector<PolicyEntry> planned_policies() {
  std::vector<PolicyEntry> planned;
  for (const PolicyEntry& entry : policy_table())
    if (entry.name != "replay" && entry.name != "hindsight") planned.push_back(entry);
  return planned;
}

std::size_t index_of(const std::vector<double>& loads, double load) {
  return static_cast<std::size_t>(std::find(loads.begin(), loads.end(), load) - loads.begin());
}

}  // namespace

LayerPlace typical_layer(const MemorySetup& setup) {
  LayerPlace first;
  for (int stage = 0; stage < setup.stage.grid.pipeline_parallel; ++stage) {
    const StageLayout layout = stage_layout(setup, stage);
    for (int b = 0; b < static_cast<int>(layout.blocks.size()); ++b) {
      const StageBlock& block = layout.blocks[b];
      if (block.kind == BlockKind::moe) return {stage, b, block};
      if (block.kind == BlockKind::dense && first.layer.layer < 0) first = {stage, b, block};
    }
  }
  return first;
}

std::vector<TensorTreatment> chosen_treatments(const MemorySetup& setup, const PolicyPeaks& policy, double load) {
  if (!policy.no_forecast.empty()) return {};
  const LayerPlace place = typical_layer(setup);
  const ExpertRows rows = balanced_rows(place.layer.context, load);
  StageForecast forecast(setup, place.stage, policy.policy);
  forecast.peak(rows.rows);
  return tensor_treatments(place.layer, forecast.program(place.block), rows);
}

std::optional<bool> PlanReport::fits(const PolicyPeaks& policy, int stage, std::size_t load) const {
  if (!policy.obeys_cap) return true;
  const StagePeaks& peaks = policy.stages[stage];
  if (peaks.least) return *peaks.least <= setup.limits.cap;
  return peaks.at.empty() ? std::nullopt : std::optional(spillway::fits(peaks.at[load], setup.limits));
}

std::optional<bool> PlanReport::fits(const PolicyPeaks& policy, std::size_t load) const {
  std::optional<bool> all;
  for (int stage = 0; stage < static_cast<int>(policy.stages.size()); ++stage)
    if (const auto one = fits(policy, stage, load)) all = all.value_or(true) && *one;
  return all;
}

std::optional<double> PlanReport::stops_at(std::optional<std::int64_t> rows_that_fit) const {
  const LoadAxis& axis = memory.axis;
  if (!rows_that_fit || *rows_that_fit >= axis.most) return std::nullopt;
  return axis.balanced == 0 ? 0 : static_cast<double>(*rows_that_fit + 1) / static_cast<double>(axis.balanced);
}

double PlanReport::iteration_flops() const {
  return token_flops.causal * static_cast<double>(planned->tokens_per_iteration());
}

Seconds PlanReport::seconds_at_peak() const {
  return Seconds(iteration_flops() / (planned->machine.peak_flops * Grid(planned->grid).ranks()));
}

PlanReport make_plan(const Case& c, std::vector<std::string> warnings, bool choices) {
  PlanReport report;
  report.planned = &c;
  report.warnings = std::move(warnings);
  report.setup = {stage_setup(c),
                  static_cast<int>(c.training.micro_batches),
                  {c.memory.alignment, c.memory.cap, c.memory.host_cap, c.machine.shared_memory},
                  c.machine,
                  c.schedule,
                  c.provisioning.options,
                  c.provisioning.margin,
                  choices ? c.provisioning.policies : std::vector<std::string>{}};
  report.parameters = count_parameters(c.model);
  report.active = count_active_parameters(c.model);
  report.token_flops = model_flops_per_token(c.model, c.training.sequence_length);
  for (int stage = 0; stage < c.grid.pipeline_parallel; ++stage)
    report.stages.push_back(static_facts(report.setup, stage));
  report.memory = memory_table(report.setup, planned_policies());
  report.layer = typical_layer(report.setup).layer;
  report.treatments = treatments(report.setup, report.memory);
  report.balance = index_of(report.memory.axis.loads, 1.0);
  report.margin = index_of(report.memory.axis.loads, c.provisioning.margin);
  return report;
}

}  // namespace spillway::app
