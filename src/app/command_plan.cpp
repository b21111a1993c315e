// spillway plan: memory, parameters and FLOPs of a case by arithmetic. No run, no session, any machine.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "app/commands.hpp"
#include "app/hugging_face.hpp"
#include "app/launcher.hpp"
#include "app/plan_report.hpp"
#include "metrics/atomic_file.hpp"

namespace spillway::app {
namespace {

/// The command line of `spillway plan`.
struct PlanRequest {
  CaseSource source;
  std::string model;  ///< a config.json of Hugging Face; empty: the case's model
  bool choices = false;
  bool schedule = false;
  std::string json;  ///< file for the facts as JSON; "-": standard output, instead of the tables
};

/// The order of work of every stage, a line each.
std::string schedule_text(const Schedule& schedule) {
  std::string text = "\norder of work (F: forward, B: backward; micro-batch, and chunk where a stage has several)\n";
  for (std::size_t stage = 0; stage < schedule.size(); ++stage)
    text += fmt::format("  stage {}: {}\n", stage, to_text(schedule[stage]));
  return text;
}

/// The workload has no part in a plan; what a run would refuse of it is said all the same.
void check_workload(const Case& c, std::vector<std::string>& warnings) {
  try {
    if (c.model.moe_layers() > 0) validate(c.routing, routing_problem(c));
  } catch (const InputError& error) {
    warnings.push_back(fmt::format("a run would refuse the workload: {}", error.what()));
  }
}

ExitCode plan(const PlanRequest& request) {
  CaseSource source = request.source;
  std::vector<std::string> warnings;
  if (!request.model.empty()) {
    HuggingFaceModel model = read_hugging_face(request.model);
    source.settings.insert(source.settings.begin(), model.settings.begin(), model.settings.end());
    warnings = std::move(model.warnings);
  }
  Case c = read_case(source);
  if (!request.model.empty()) c.model_name = request.model;
  validate_without_workload(c, 0);
  check_workload(c, warnings);
  if (const std::string stages = stages_not_fused(c); !stages.empty()) warnings.push_back(stages);
  if (!is_first_rank()) return ExitCode::valid;

  const PlanReport report = make_plan(c, std::move(warnings), request.choices);
  const std::string json =
      request.json.empty() ? "" : plan_json(report).dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
  fmt::print("{}", request.json == "-" ? json : plan_text(report));
  if (request.schedule && request.json != "-") fmt::print("{}", schedule_text(pipeline_schedule(c)));
  std::fflush(stdout);
  if (!json.empty() && request.json != "-") write_atomically(request.json, json);
  return ExitCode::valid;
}

}  // namespace

Action declare_plan(CLI::App& app) {
  const auto request = std::make_shared<PlanRequest>();
  add_case_options(app, request->source, "to plan");
  app.add_option("--model", request->model,
                 "config.json of a Hugging Face model, instead of the case's model; --set still wins");
  app.get_option("--model")->type_name("FILE");
  app.add_flag("--choices", request->choices,
               "also ask those of the case's policies that decide when the load is known what they choose at several "
               "loads; takes seconds where expert groups are large");
  app.add_flag("--schedule", request->schedule, "also print the order of work of every stage");
  app.add_option("--json", request->json, "also write everything as JSON; - for standard output instead of tables");
  app.get_option("--json")->type_name("FILE");
  return [request] { return plan(*request); };
}

}  // namespace spillway::app
