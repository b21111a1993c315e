// The tables of `spillway plan`.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/plan_report.hpp"

namespace spillway::app {
namespace {

/// One unit for all tables, so that columns compare at a glance.
struct Unit {
  const char* name;
  double bytes;
  double of(Bytes b) const { return static_cast<double>(b.value) / bytes; }
};

Unit unit_for(const PlanReport& report) {
  Bytes largest;
  for (const PolicyPeaks& policy : report.memory.policies)
    for (int stage = 0; policy.has_bytes() && stage < static_cast<int>(policy.stages.size()); ++stage)
      largest = std::max(largest, policy.bytes(stage, report.memory.axis.loads.size() - 1));
  if (largest >= Bytes(1'000'000'000)) return {"GB", 1e9};
  return largest >= Bytes(1'000'000) ? Unit{"MB", 1e6} : Unit{"kB", 1e3};
}

/// A line of treatment_lines, indented and broken behind commas where it would be longer than 120 columns.
std::string wrapped(std::string line) {
  constexpr std::size_t width = 116, continued = 23;
  std::string text;
  while (line.size() > width) {
    const std::size_t comma = line.rfind(", ", width - 1);
    if (comma == std::string::npos || comma < continued) break;
    text += "    " + line.substr(0, comma + 1) + '\n';
    line = std::string(continued, ' ') + line.substr(comma + 2);
  }
  return text + "    " + line + '\n';
}

std::string billions(std::int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  return parameters >= 1'000'000'000 ? fmt::format("{:.2f} B", n * 1e-9) : fmt::format("{:.3f} M", n * 1e-6);
}

std::string file_name(const std::string& name) { return std::filesystem::path(name).stem().string(); }

std::string header(const PlanReport& r, const Unit& unit) {
  const Case& c = *r.planned;
  const Grid grid(c.grid);
  const LoadAxis& axis = r.memory.axis;
  const int chunks = r.setup.stage.chunks();
  const std::string order =
      chunks == 1 ? c.schedule : fmt::format("{} chunks per stage, interleaved {}", chunks, c.schedule);
  std::string text = fmt::format(
      "case {}: planned by arithmetic; nothing was run\n"
      "  model       {}{}: {} parameters, {} active per token\n"
      "  FLOPs       {:.4g} per token, forward and backward, attention causal ({:.4g} non-causal)\n"
      "  iteration   {} tokens = {} sequences x {}; {:.4g} FLOPs, {:.4g} s at the peak of all ranks (machine {})\n"
      "  ranks       {} = pipeline_parallel {} x data_parallel {} x tensor_parallel {}; expert_parallel {}, so {} of "
      "every expert\n"
      "  layers      {} = {}; {}; {} micro-batches\n",
      c.name, file_name(c.model_name), c.model.head ? "" : " without embedding and output head",
      billions(r.parameters.total()), billions(r.active), r.token_flops.causal, r.token_flops.noncausal,
      c.tokens_per_iteration(), c.global_batch(), c.training.sequence_length, r.iteration_flops(),
      r.seconds_at_peak().value, file_name(c.machine.name), grid.ranks(), grid.pipeline(), grid.data(), grid.tensor(),
      grid.expert(), grid.expert_replicas(), c.model.num_hidden_layers, fmt::join(layers_of_pieces(c), " + "), order,
      r.setup.micro_batches);
  if (axis.balanced > 0)
    text += fmt::format(
        "  load        x1 = {} rows of a layer and micro-batch on every rank; at most x{:.4g} = {} rows, since a token "
        "chooses {} distinct experts and a rank holds {}\n",
        axis.balanced, axis.bound(), axis.most, c.model.num_experts_per_tok, c.model.num_experts / grid.expert());
  text += fmt::format("  cap         {:.3f} {} = {} bytes on every rank\n", unit.of(c.memory.cap), unit.name,
                      c.memory.cap.value);
  for (const std::string& warning : r.warnings) text += fmt::format("  warning     {}\n", warning);
  return text;
}

std::string static_table(const PlanReport& r, const Unit& unit) {
  std::string text = fmt::format(
      "\nStages: what does not depend on the load, per rank, in {}; in flight: (micro-batch, chunk) pairs, and the "
      "same "
      "in micro-batches\n"
      "  stage  layers      in flight  dense params  expert params  parameters   gradients   optimizer    messages    "
      "together\n",
      unit.name);
  for (std::size_t i = 0; i < r.stages.size(); ++i) {
    const StaticFacts& s = r.stages[i];
    text += fmt::format(
        "  {:>5}  {:>6}  {:>4} = {:>6.4g}  {:>12}  {:>13}  {:>10.3f}  {:>10.3f}  {:>10.3f}  {:>10.3f}  {:>10.3f}\n", i,
        s.layers, s.live_pairs, s.live_micro_batches, billions(s.dense), billions(s.expert), unit.of(s.parameters),
        unit.of(s.gradients), unit.of(s.optimizer), unit.of(s.communication), unit.of(s.total()));
  }
  return text;
}

/// Policies that do the same at every load are named together.
std::string treatment_section(const PlanReport& r) {
  std::string text = fmt::format(
      "\nTensors that the backward pass of a layer ({}) reads, bytes per micro-batch (at balance, or at the first load "
      "named), and\nwhat becomes of them\n",
      name(r.layer.kind));
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;  // who, lines
  for (const TreatmentFacts& t : r.treatments) {
    const auto lines = treatment_lines(t.tensors);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.second == lines; });
    const std::string who = !t.follows_load ? t.policy
                            : t.load_from == t.load_to
                                ? fmt::format("{} at x{:.4g}", t.policy, t.load_from)
                                : fmt::format("{} at x{:.4g} to x{:.4g}", t.policy, t.load_from, t.load_to);
    if (same != groups.end())
      same->first += ", " + who;
    else
      groups.emplace_back(who, lines);
  }
  for (const auto& [who, lines] : groups) {
    text += "  " + who + '\n';
    for (const std::string& line : lines) text += wrapped(line);
  }
  return text;
}

/// "never", or the load at which memory ends.
std::string stop_text(const PlanReport& r, const PolicyPeaks& policy, const std::optional<std::int64_t>& rows) {
  if (!policy.obeys_cap) return "no cap";
  if (!rows) return "-";
  const auto load = r.stops_at(rows);
  return load ? fmt::format("x{:.3f}", *load) : std::string("never");
}

/// A policy without forecast: the least is all that is known of one that adapts.
std::string least_table(const PlanReport& r, const PolicyPeaks& policy, const Unit& unit) {
  std::string text = fmt::format("\n{}: {}; {}\n", policy.policy.name, policy.policy.meaning, policy.no_forecast);
  if (!policy.adapts) return text;
  text += fmt::format("  stage{:>12} | stops fitting\n", fmt::format("{} at least", unit.name));
  for (std::size_t i = 0; i < policy.stages.size(); ++i)
    text += fmt::format("  {:>5}{:>12.3f} | {}\n", i, unit.of(*policy.stages[i].least),
                        stop_text(r, policy, policy.stages[i].rows_that_fit));
  return text;
}

std::string policy_table_text(const PlanReport& r, const PolicyPeaks& policy, const Unit& unit) {
  if (!policy.no_forecast.empty()) return least_table(r, policy, unit);
  const bool hosted = std::any_of(policy.stages.begin(), policy.stages.end(),
                                  [](const StagePeaks& s) { return s.at.back().host > Bytes(0); });
  std::string text = fmt::format(
      "\n{}: {}; peaks in {}, categories at balance\n  stage       MoE     other   messages  "
      "workspace{} |",
      policy.policy.name, policy.policy.meaning, unit.name, hosted ? "      host" : "");
  for (const double load : r.memory.axis.loads) text += fmt::format("{:>10}", fmt::format("x{:.4g}", load));
  text += " | stops fitting\n";
  for (std::size_t i = 0; i < policy.stages.size(); ++i) {
    const StagePeaks& stage = policy.stages[i];
    const ByteLedger& balance = *stage.balance;
    text +=
        fmt::format("  {:>5}{:>10.3f}{:>10.3f}{:>11.3f}{:>11.3f}", i, unit.of(balance.peak(Category::activation_moe)),
                    unit.of(balance.peak(Category::activation_other)), unit.of(balance.peak(Category::communication)),
                    unit.of(balance.peak(Category::workspace)));
    if (hosted) text += fmt::format("{:>10.3f}", unit.of(stage.at[r.balance].host));
    text += " |";
    for (const MemoryPeak& at : stage.at) text += fmt::format("{:>10.3f}", unit.of(at.device));
    text += fmt::format(" | {}\n", stop_text(r, policy, stage.rows_that_fit));
  }
  return text;
}

std::string summary(const PlanReport& r, const Unit& unit) {
  const std::string margin = fmt::format("at x{:.4g}", r.planned->provisioning.margin);
  std::string text = fmt::format(
      "\nWhat fits into {:.3f} {}\n  {:<16}{:>12}{:>14}{:>16}   worst stage, ordinary (median) stage at balance\n",
      unit.of(r.planned->memory.cap), unit.name, "policy", "at balance", margin, "stops fitting");
  for (const PolicyPeaks& policy : r.memory.policies) {
    const auto answer = [&](std::size_t load) {
      const std::optional<bool> fits = r.fits(policy, load);
      return !policy.obeys_cap ? "no cap" : !fits ? "-" : *fits ? "fits" : "does not fit";
    };
    text += fmt::format("  {:<16}{:>12}{:>14}{:>16}", policy.policy.name, answer(r.balance), answer(r.margin),
                        stop_text(r, policy, policy.rows_that_fit()));
    if (policy.has_bytes()) {
      const int worst = policy.worst_stage(r.balance), ordinary = policy.ordinary_stage(r.balance);
      text += fmt::format("   stage {}: {:.3f}, stage {}: {:.3f}{}", worst, unit.of(policy.bytes(worst, r.balance)),
                          ordinary, unit.of(policy.bytes(ordinary, r.balance)),
                          policy.no_forecast.empty() ? "" : " at least, at any load");
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  const Unit unit = unit_for(report);
  std::string text = header(report, unit) + static_table(report, unit) + treatment_section(report);
  for (const PolicyPeaks& policy : report.memory.policies) text += policy_table_text(report, policy, unit);
  return text + summary(report, unit);
}

}  // namespace spillway::app
