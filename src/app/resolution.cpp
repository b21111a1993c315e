#include "app/resolution.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/output_folder.hpp"
#include "base/nearest.hpp"
#include "plan/policy/policy.hpp"

namespace spillway::app {

namespace {

/// Nothing is overwritten, and no run is lost for want of a folder.
void check_decisions_file(const RunRequest& request) {
  namespace fs = std::filesystem;
  const fs::path file = request.decisions;
  if (file.empty()) return;
  require_input(!fs::exists(file), "--decisions {}: the file exists; name another or move it away", file.string());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  require_input(fs::is_directory(folder), "--decisions {}: there is no folder {}", file.string(), folder.string());
  const bool among_results =
      !request.output.empty() && fs::weakly_canonical(folder) == fs::weakly_canonical(request.output);
  require_input(!among_results || (file.extension() != ".json" && file.extension() != ".csv"),
                "--decisions {}: in the result folder, .json and .csv are the results' own; name it .jsonl, say",
                file.string());
}

/// The same, and that the file can be written. Where it shall lie among the results their folder exists by now.
void check_timeline_file(const RunRequest& request, const std::string& results) {
  namespace fs = std::filesystem;
  const fs::path file = request.timeline.file;
  if (file.empty()) return;
  require_input(!fs::exists(file), "--timeline {}: the file exists; name another or move it away", file.string());
  require_input(file.has_filename(), "--timeline {}: is a folder; name a file in it", file.string());
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (!results.empty() && fs::weakly_canonical(folder) == fs::weakly_canonical(results)) {
    const auto name = file.filename();
    require_input(name != "result.json" && name != "iterations.csv" && name != "rank_iterations.csv",
                  "--timeline {}: this name is the results' own; name it timeline.json, say", file.string());
  }
  require_input(fs::is_directory(folder), "--timeline {}: there is no folder {}", file.string(), folder.string());
  require_input(request.decisions.empty() || fs::weakly_canonical(request.decisions) != fs::weakly_canonical(file),
                "--timeline {}: --decisions names the same file", file.string());
  probe_file(file);
}

}  // namespace

TimelineOptions timeline_options(const Case& c, const RunRequest::Timeline& request) {
  const auto& policies = c.provisioning.policies;
  TimelineOptions options{request.policy, request.iterations};
  if (options.policy.empty()) {
    const auto ranked =
        std::find_if(policies.begin(), policies.end(), [](const auto& p) { return find_policy(p).ranked; });
    options.policy = ranked != policies.end() ? *ranked : policies.front();
  }
  require_input(std::find(policies.begin(), policies.end(), options.policy) != policies.end(),
                "--timeline-policy {}: is none of the case's policies ({}); did you mean {}?", options.policy,
                fmt::join(policies, ", "), nearest(options.policy, policies));
  for (const std::int64_t i : options.iterations)
    require_input(i >= 0 && i < c.training.iterations, "--timeline-iteration {}: the case has iterations 0 to {}", i,
                  c.training.iterations - 1);
  return options;
}

Resolution resolve(const RunRequest& request, const LaunchFacts& facts) {
  try {
    const Case c = read_case(request.source);
    validate_real_run(c, facts);
    if (c.model.moe_layers() > 0) make_routing_source(c.routing, routing_problem(c));  // refuses what cannot be met
    Resolution resolution{ExitCode::valid, canonical_text(c), ""};
    if (!request.output.empty()) check_output_folder(request.output);
    check_decisions_file(request);
    if (!request.timeline.file.empty()) timeline_options(c, request.timeline);
    if (!request.validate_only) {
      resolution.folder = request.output.empty() ? default_output_folder(c.name).string() : request.output;
      create_output_folder(resolution.folder);
      check_timeline_file(request, resolution.folder);
    }
    return resolution;
  } catch (const Error& error) {
    return {error.code(), error.what(), ""};
  } catch (const std::exception& error) {  // a file system that fails while it is read, say
    return {ExitCode::environment, error.what(), ""};
  }
}

std::string pack(const Resolution& resolution) {
  const nlohmann::json json = {static_cast<int>(resolution.code), resolution.text, resolution.folder};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Resolution unpack(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {static_cast<ExitCode>(json.at(0).get<int>()), json.at(1), json.at(2)};
}

Case agreed_case(const Resolution& resolution, bool first_rank) {
  const std::string message = first_rank ? resolution.text : "";
  switch (resolution.code) {
    case ExitCode::valid:
      return parse_case(resolution.text);
    case ExitCode::usage:
      throw InputError(message);
    case ExitCode::environment:
      throw EnvironmentError(message);
    default:
      throw InternalError(message);
  }
}

}  // namespace spillway::app
