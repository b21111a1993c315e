#include "metrics/report_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.hpp"

namespace spillway {
namespace {

/// A name as a value of a key=value line.
std::string token(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isspace(c) != 0; }, '_');
  return name;
}

/// Fixed notation with at least `digits` significant digits and `decimals` decimals.
std::string fixed(const std::optional<double>& v, int digits, int decimals, const char* absent) {
  if (!v) return absent;
  const int leading = *v != 0 && std::isfinite(*v) ? static_cast<int>(std::floor(std::log10(std::abs(*v)))) : 0;
  return fmt::format("{:.{}f}", *v, std::max(decimals, digits - 1 - leading));
}

struct Figures {
  std::string tokens, mfu, efficiency;
};
Figures figures(const Evaluation& evaluation, const char* absent) {
  const auto& fom = evaluation.fom;
  return {fixed(fom ? std::optional(fom->tokens_per_second) : std::nullopt, 5, 1, absent),
          fixed(fom ? std::optional(fom->effective_mfu) : std::nullopt, 4, 4, absent),
          fixed(fom ? fom->provisioning_efficiency : std::nullopt, 3, 3, absent)};
}

std::string header(const Report& report) {
  const std::string clock =
      report.virtual_clock
          ? fmt::format("virtual clock: seconds computed from machine file {}, not measured", report.machine)
          : "wall clock: seconds measured";
  return fmt::format("Spillway {}case {} on {} ranks, {} data\n{}\n", report.phantom_data ? "projection of " : "",
                     report.case_name, report.facts.ranks, report.phantom_data ? "phantom" : "real", clock);
}

constexpr const char* table_row = "{:<{}}  {:>12}  {:>8}  {:>10}  {:>10}  {:>5}  {:>8}  {:>12}\n";

std::string table_line(const PolicyRun& run, const Evaluation& evaluation, std::size_t width) {
  if (run.infeasible) return fmt::format("{:<{}}  infeasible: {}\n", run.policy, width, *run.infeasible);
  const Figures f = figures(evaluation, "-");
  const Summary& s = evaluation.job;
  return fmt::format(table_row, run.policy, width, f.tokens, f.mfu, f.efficiency,
                     s.peak ? fmt::format("{:.1f}", mebibytes(s.peak->total)) : "-",
                     s.oom_events ? fmt::format("{}", *s.oom_events) : "-",
                     s.restarts ? fmt::format("{}", *s.restarts) : "-",
                     s.restart_equivalent_cost ? fmt::format("{:.3f}", *s.restart_equivalent_cost) : "-");
}

/// How far the cost model was off: seconds of the policy it missed most, bytes of any.
std::string prediction_line(const Report& report, const std::vector<Evaluation>& evaluations) {
  std::size_t worst = evaluations.size();
  double most = -1, bytes = 0;
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    const Summary& s = evaluations[i].job;
    if (const double b = s.predicted_activation_error.value_or(0); std::abs(b) > std::abs(bytes)) bytes = b;
    if (!s.predicted_seconds_error || std::abs(*s.predicted_seconds_error) <= most) continue;
    most = std::abs(*s.predicted_seconds_error);
    worst = i;
  }
  if (worst == evaluations.size()) return {};
  const PolicyRun& run = report.runs[worst];
  const auto& [predicted, spent] = run.ranks.front().predicted.value();
  return fmt::format(
      "prediction, worst policy {}: {:.4g} s per iteration by the machine file, {:.4g} s {} ({:+.1f} %); peak "
      "activation "
      "bytes {:+.1f} %\n",
      run.policy, predicted.value, spent.value, report.virtual_clock ? "on the virtual clock" : "measured",
      100 * *evaluations[worst].job.predicted_seconds_error, 100 * bytes);
}

/// Of every policy, where lanes had anything to do beside each other.
std::string overlap_line(const Report& report, const std::vector<Evaluation>& evaluations) {
  std::string text;
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    if (const auto share = evaluations[i].job.overlap_efficiency)
      text += fmt::format("{} {} {:.2f}", text.empty() ? "" : ",", report.runs[i].policy, *share);
  if (text.empty()) return {};
  return fmt::format("overlap efficiency, {} (lane seconds that fell together / that could have):{}\n",
                     report.virtual_clock ? "on the virtual clock" : "measured", text);
}

}  // namespace

std::string figure_line(const Report& report, const PolicyRun& run, const Evaluation& evaluation) {
  const std::string names = fmt::format("case={} policy={}", token(report.case_name), token(run.policy));
  if (run.infeasible) return fmt::format("INFEASIBLE {} hash={} reason: {}", names, report.hash, *run.infeasible);
  const Figures f = figures(evaluation, "null");
  return fmt::format("{} {} tokens_per_second={} effective_mfu={} provisioning_efficiency={} hash={} status={}",
                     report.virtual_clock ? "PROJECTED" : "FOM", names, f.tokens, f.mfu, f.efficiency, report.hash,
                     invalid_reasons(report).empty() ? "VALID" : "INVALID");
}

std::string report_text(const Report& report, const std::vector<Evaluation>& evaluations) {
  ensure(report.runs.size() == evaluations.size(), "{} runs but {} evaluations", report.runs.size(),
         evaluations.size());
  std::size_t width = std::string_view("policy").size();
  for (const PolicyRun& run : report.runs) width = std::max(width, run.policy.size());
  std::string text = header(report) + "\n";
  text += fmt::format(table_row, "policy", width, "tokens/s", "MFU", "efficiency", "peak MiB", "OOMs", "restarts",
                      "restart-eq.");
  for (std::size_t i = 0; i < evaluations.size(); ++i) text += table_line(report.runs[i], evaluations[i], width);
  text += fmt::format("\nMFU: causal convention, of {:g} FLOP/s per rank ({}); restart-eq.: lost seconds / {:g} s\n",
                      report.facts.peak_flops, report.facts.peak_source, report.facts.restart_seconds.value);
  text += prediction_line(report, evaluations);
  text += overlap_line(report, evaluations);
  if (report.environment.contains("warnings"))
    for (const auto& warning : report.environment["warnings"]) text += "warning: " + warning.get<std::string>() + "\n";
  text += "\n";
  std::vector<MarginReference> references;
  for (std::size_t i = 0; i < evaluations.size() && report.virtual_clock; ++i)
    if (evaluations[i].fom) references.push_back({report.runs[i].policy, evaluations[i].fom->tokens_per_second});
  const std::string margins = margin_text(report.margins, references);
  if (!margins.empty()) text += margins + "\n";
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    text += figure_line(report, report.runs[i], evaluations[i]) + "\n";
  }
  const std::vector<std::string> reasons = invalid_reasons(report);
  text += reasons.empty() ? "VALID\n" : "INVALID\n";
  for (const std::string& reason : reasons) text += "  " + reason + "\n";
  return text;
}

}  // namespace spillway
