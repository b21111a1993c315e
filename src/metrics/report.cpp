#include "metrics/report.hpp"

namespace spillway {
namespace {

OracleReference find_oracle(const Report& report) {
  std::string reason = report.oracle_reason;
  for (const PolicyRun& run : report.runs) {
    if (run.policy != "oracle") continue;
    if (!run.infeasible && run.reasons.empty()) return {&run, report.phantom_data ? "projected" : "run", {}};
    reason = run.infeasible ? "oracle is infeasible: " + *run.infeasible : "oracle is invalid: " + run.reasons.front();
  }
  if (report.projected_oracle) return {&*report.projected_oracle, "projected", {}};
  return {nullptr, {}, reason};
}

}  // namespace

std::vector<std::string> invalid_reasons(const Report& report) {
  std::vector<std::string> reasons = report.reasons;
  for (const PolicyRun& run : report.runs) {
    for (const std::string& reason : run.reasons) reasons.push_back("policy " + run.policy + ": " + reason);
  }
  return reasons;
}

std::vector<Evaluation> evaluate(const Report& report) {
  const OracleReference oracle = find_oracle(report);
  const bool valid = invalid_reasons(report).empty();
  std::vector<Evaluation> evaluations;
  for (const PolicyRun& run : report.runs) {
    evaluations.push_back(evaluate(run, oracle, report.facts));
    if (!valid) withhold_figures(evaluations.back());
    if (!report.phantom_data) continue;  // nobody is kept waiting by a projection's decisions
    evaluations.back().job.decision_seconds.reset();
    for (Summary& rank : evaluations.back().ranks) rank.decision_seconds.reset();
  }
  return evaluations;
}

}  // namespace spillway
