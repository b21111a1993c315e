// spillway run: real data, under a launcher.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <optional>

#include "app/commands.hpp"
#include "app/launcher.hpp"
#include "app/option_table.hpp"
#include "app/resolution.hpp"
#include "app/results.hpp"
#include "device/fault.hpp"
#include "metrics/atomic_file.hpp"
#include "metrics/hash.hpp"
#include "run/experiment.hpp"
#include "run/policy_run.hpp"
#include "run/timeline_file.hpp"

namespace spillway::app {
namespace {

/// One line per policy: whether it fits at the load static policies plan for.
std::string feasibility(const Case& c) {
  const Schedule schedule = pipeline_schedule(c);
  std::string text;
  for (const std::string& policy : c.provisioning.policies)
    text +=
        fmt::format("  {:<15} {}\n", policy, infeasibility(c, schedule, policy).value_or("fits at the planned load"));
  return text;
}

/// What --validate-only prints: the arithmetic behind the case.
std::string describe(const Case& c) {
  const Grid grid(c.grid);
  return fmt::format(
      "case {}: the input is valid; nothing was run\n"
      "  ranks       {} = pipeline_parallel {} x data_parallel {} x tensor_parallel {}; expert_parallel {}\n"
      "  layers      {} = {}\n"
      "  parameters  {}, {} of them active (model {})\n"
      "  iteration   {} tokens = {} sequences x {}; {} iterations, {} clock, machine {}\n"
      "{}",
      c.name, grid.ranks(), grid.pipeline(), grid.data(), grid.tensor(), grid.expert(), c.model.num_hidden_layers,
      fmt::join(layers_of_pieces(c), " + "), count_parameters(c.model).total(), count_active_parameters(c.model),
      c.model_name, c.tokens_per_iteration(), c.global_batch(), c.training.sequence_length, c.training.iterations,
      words(c.clock)[static_cast<std::size_t>(c.clock)], c.machine.name, feasibility(c));
}

/// Runs the case. A failure on one rank must not leave the others waiting in a collective: it ends the whole job.
Report run_or_abort(const Case& c, const Session& session, const SideOutputs& outputs) {
  try {
    return run_experiment(c, session, outputs);
  } catch (const Error& error) {
    session.abort(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    session.abort(ExitCode::environment, "the host has no more memory to give");
  } catch (const std::exception& error) {
    session.abort(ExitCode::invalid, error.what());
  }
}

/// Records this rank where a timeline is asked for.
std::optional<TimelineRecorder> recorder(const Case& c, const Session& session, const RunRequest& request) {
  if (request.timeline.file.empty()) return std::nullopt;
  TimelineRecorder recorder(timeline_options(c, request.timeline));
  const Coordinates here = Grid(c.grid).coordinates(session.rank());
  recorder.timeline().rank = session.rank();
  recorder.timeline().place = fmt::format("stage {}, data {}, tensor {}, expert {} on {}", here.pipeline, here.data,
                                          here.tensor, here.expert, session.host());
  return recorder;
}

/// A run that has ended, and where its files go.
struct Ended {
  const Case& run_case;
  const Session& session;
  const RunRequest& request;
  const std::string& folder;
  const std::vector<std::string>& decisions;
  const std::optional<TimelineRecorder>& timeline;
};

/// The folder's files, and what was asked for besides.
void write_files(Report& report, const Ended& run) {
  write_results(report, run.run_case, run.folder, run.request.csv_per_rank);
  const std::string& decisions = run.request.decisions;
  if (!decisions.empty()) write_atomically(decisions, fmt::format("{}", fmt::join(run.decisions, "")));
  fmt::print("results in {}\n", run.folder);
  std::fflush(stdout);
}

/// Collective over the world. Without a file where the policy ran none of the iterations: it does not fit, or the run
/// ended before.
void save_timeline(const Ended& run) {
  const Case& c = run.run_case;
  const std::string& file = run.request.timeline.file;
  const TimelineOptions& shown = run.timeline->options();
  const RankTimeline& mine = run.timeline->timeline();
  const bool first = run.session.rank() == 0;
  if (mine.iterations.empty()) {
    if (first)
      fmt::print("no timeline: {} did not run iteration {}\n", shown.policy, fmt::join(shown.iterations, ", "));
    return;
  }
  write_timeline(file,
                 {c.name, shown.policy, c.machine.name, result_hash(comparable_text(c)), SPILLWAY_VERSION,
                  shown.iterations, run.session.world(), c.memory.cap, c.clock == ClockKind::virtual_time},
                 mine, run.session);
  if (first) fmt::print("timeline in {}\n", file);
}

/// A file that cannot be written keeps back no other, and no rank waits for one that has given up.
void deliver(Report& report, const Ended& run) {
  std::exception_ptr failure;
  try {
    if (run.session.rank() == 0) write_files(report, run);
  } catch (...) {
    failure = std::current_exception();
  }
  if (run.timeline) save_timeline(run);
  if (failure) std::rethrow_exception(failure);
}

/// The life of a run: session, configuration, verification, policies, report. The only function here that meets the
/// launcher.
ExitCode launch(const RunRequest& request) {
  if (request.validate_only) {
    const Case c = agreed_case(resolve(request, LaunchFacts{}), is_first_rank());
    if (is_first_rank()) fmt::print("{}", describe(c));
    return ExitCode::valid;
  }
  const Session session;
  device::reach(device::Phase::start);
  const Resolution mine = session.rank() == 0 ? resolve(request, session.facts()) : Resolution{};
  const Resolution agreed = unpack(session.broadcast(session.rank() == 0 ? pack(mine) : ""));
  // Said while the session lasts: a launcher ends the first rank as soon as another has left with an error.
  if (session.rank() == 0 && agreed.code != ExitCode::valid) fmt::print(stderr, "spillway: error: {}\n", agreed.text);
  const Case c = agreed_case(agreed, false);

  std::vector<std::string> decisions;
  std::optional<TimelineRecorder> timeline = recorder(c, session, request);
  Report report =
      run_or_abort(c, session,
                   {request.decisions.empty() ? nullptr : &decisions, timeline.has_value() ? &*timeline : nullptr});
  device::reach(device::Phase::report);
  const bool valid = invalid_reasons(report).empty();
  deliver(report, {c, session, request, agreed.folder, decisions, timeline});
  return valid ? ExitCode::valid : ExitCode::invalid;
}

}  // namespace

Action declare_run(CLI::App& app) {
  const auto request = std::make_shared<RunRequest>();
  add_case_options(app, request->source, "to run");
  add_result_options(app, request->output, request->csv_per_rank);
  app.add_flag("--validate-only", request->validate_only, "check the whole case, then stop");
  app.add_flag_callback(
      "--allow-oversubscribed", [request] { request->source.settings.push_back("allow_oversubscribed=true"); },
      "let more ranks than cores run on the wall clock");
  app.add_option("--decisions", request->decisions,
                 "file for every decision with its inputs, one JSON object per line; replay.file reads it back");
  app.get_option("--decisions")->type_name("FILE");
  app.add_option("--timeline", request->timeline.file,
                 "file for a timeline in the Trace Event format: what every lane of every rank did in an iteration, "
                 "messages, and memory by category; open it in ui.perfetto.dev or chrome://tracing");
  app.get_option("--timeline")->type_name("FILE");
  app.add_option("--timeline-policy", request->timeline.policy,
                 "policy that the timeline shows [the first ranked one of the case]")
      ->type_name("NAME")
      ->needs("--timeline");
  app.add_option("--timeline-iteration", request->timeline.iterations,
                 "iterations that the timeline shows, 8 or 7,8,9 [the first in a burst, or else 0]; of one that is run "
                 "again after a restart every attempt")
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs("--timeline");
  return [request] { return launch(*request); };
}

}  // namespace spillway::app
