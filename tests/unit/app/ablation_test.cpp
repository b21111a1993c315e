// What each step is worth on the demo, projected: one treatment for all, a plan per operator, decisions at run time, overlap.
#include <fmt/format.h>

#include "metrics/summary.hpp"
#include "run/policy_projection.hpp"
#include "run/policy_run.hpp"
#include "support.hpp"

namespace spillway::app {
namespace {

/// Whole iterations of the demo, the burst among them.
constexpr std::int64_t iterations = 34;

struct Step {
  PolicyRun run;
  Evaluation figures;
  double spikes = 0;  ///< seconds of the iterations in bursts
};

class Demo {
 public:
  explicit Demo(std::vector<std::string> settings) : settings_(std::move(settings)) {}

  /// A policy under an order of work, against the oracle in the same order.
  Step project(const std::string& policy, const std::string& schedule, const std::string& fuse) const {
    std::vector<std::string> settings = settings_;
    settings.push_back("parallel.schedule=" + schedule);
    settings.push_back("parallel.fuse=" + fuse);
    const Case c = read_case({std::string(SPILLWAY_SOURCE_DIR) + "/inputs/runs/demo.toml", settings});
    const auto routing = make_routing_source(c.routing, routing_problem(c));
    const MachineTime time(c.machine);
    const Schedule order = pipeline_schedule(c);
    const ProjectionSetting setting{c, *routing, order, time};
    Step step{project_policy(setting, policy, iterations), {}};
    const PolicyRun oracle = project_policy(setting, "oracle", iterations);
    RunFacts facts;
    facts.tokens_per_iteration = c.tokens_per_iteration();
    facts.model_flops_per_token_causal = facts.model_flops_per_token_noncausal = facts.peak_flops = 1;
    facts.ranks = 16;
    facts.restart_seconds = c.machine.restart_seconds;
    step.figures = evaluate(step.run, {&oracle, "projected", ""}, facts);
    for (const IterationRecord& i : step.run.iterations)
      if (routing->in_burst(i.index)) step.spikes += i.seconds.value;
    return step;
  }

 private:
  std::vector<std::string> settings_;
};

double rate(const Step& s) { return s.figures.fom.value().tokens_per_second; }

void print(const std::string& name, const Step& s) {
  const Summary& job = s.figures.job;
  fmt::print("{:<30} {:>10.1f} tokens/s {:>6.3f} of its oracle, hidden: mitigation {:>5.1f} %, all-to-all {:>5.1f} %\n",
             name, rate(s), s.figures.fom->provisioning_efficiency.value_or(0), 100 * job.hidden_mitigation.value_or(0),
             100 * job.hidden_all_to_all.value_or(0));
}

/// Model chunks of a stage and interference; empty: the demo's own.
using Parameters = std::tuple<std::string, std::string>;
class Ablation : public testing::TestWithParam<Parameters> {};

TEST_P(Ablation, EachStepOfTheDemoIsFasterThanTheOneBefore) {
  const auto& [chunks, interference] = GetParam();
  std::vector<std::string> settings{"parallel.virtual_stages=" + chunks};
  if (!interference.empty()) settings.push_back("machine.interference=" + interference);
  const Demo demo(settings);
  const Step full = demo.project("full", "1f1b", "auto"), unified = demo.project("unified", "1f1b", "auto"),
             flexible = demo.project("flexible:ratio", "1f1b", "auto"),
             overlap = demo.project("flexible:ratio", "dual_batch", "auto"),
             fused = demo.project("flexible:ratio", "dual_batch", "always"),
             published = demo.project("flexible:ratio", "dual_batch_published", "auto");
  fmt::print("virtual_stages {}, interference {}\n", chunks, interference.empty() ? "of the machine" : interference);
  print("full", full);
  print("unified", unified);
  print("flexible", flexible);
  print("flexible, units as they fit", overlap);
  print("flexible, always fused", fused);
  print("flexible, as published", published);

  EXPECT_LT(rate(full), rate(unified));
  // Where copies cost nothing, a plan that copies everything loses nothing.
  if (interference != "1.0") {
    EXPECT_LT(rate(unified), rate(flexible));
  }
  EXPECT_LT(rate(flexible), rate(overlap));
  EXPECT_LT(rate(published), rate(overlap));
  EXPECT_GT(overlap.figures.job.hidden_all_to_all.value(), 0.25);
  EXPECT_LT(flexible.figures.job.hidden_all_to_all.value(), 0.01);
  EXPECT_LE(overlap.spikes, fused.spikes);
  EXPECT_LE(overlap.spikes, flexible.spikes);
}

INSTANTIATE_TEST_SUITE_P(Demo, Ablation,
                         testing::Values(Parameters("1", ""), Parameters("2", ""), Parameters("2", "1.0"),
                                         Parameters("2", "1.2"), Parameters("2", "1.5")));

/// Under memory so tight that some units of a spike would have to slice or repeat a dispatch, those are taken in turn.
TEST(Fusing, WhereMemoryIsTightChoosingUnitByUnitIsFasterThanEitherOrder) {
  const Demo demo({"parallel.virtual_stages=2", "memory.cap=2816 KiB"});
  const Step plain = demo.project("flexible:ratio", "1f1b", "auto"),
             fused = demo.project("flexible:ratio", "dual_batch", "always"),
             chosen = demo.project("flexible:ratio", "dual_batch", "auto");
  EXPECT_LT(plain.spikes, fused.spikes);
  EXPECT_LT(chosen.spikes, plain.spikes);
  EXPECT_GT(rate(chosen), rate(plain));
  EXPECT_GT(rate(chosen), rate(fused));
}

}  // namespace
}  // namespace spillway::app
