#include "metrics/report_csv.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace spillway {
namespace {

std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}
std::string cell(std::int64_t v) { return fmt::format("{}", v); }
std::string cell(bool v) { return v ? "1" : "0"; }
std::string cell(double v) { return fmt::format("{}", v); }  // the shortest text that reads back as the same number
std::string cell(Seconds v) { return cell(v.value); }
template <class T>
std::string cell(const std::optional<T>& v) {
  return v ? cell(*v) : std::string();
}

std::string row(std::initializer_list<std::string> cells) { return fmt::format("{}\n", fmt::join(cells, ",")); }

/// Columns that name a record: those of row_key.
constexpr std::string_view key_header = "case,hash,clock,data,policy,position,index,event";

std::string row_key(const Report& report, const PolicyRun& run, std::size_t position) {
  constexpr std::array<std::string_view, 3> events = {"none", "oom", "restart"};
  const IterationRecord& i = run.iterations[position];
  return fmt::format("{},{},{},{},{},{},{},{}", cell(std::string_view(report.case_name)), report.hash,
                     report.virtual_clock ? "virtual" : "wall", report.phantom_data ? "phantom" : "real",
                     cell(std::string_view(run.policy)), position, i.index,
                     events[static_cast<std::size_t>(i.event())]);
}

}  // namespace

std::string iterations_csv(const Report& report) {
  std::string text = fmt::format(
      "{},policy_in_force,start_seconds,seconds,imbalance,imbalance_mean,conservative,restarted,"
      "restart_seconds_measured,oom_rank,oom_seconds,oom_operator,loss,gradient_checksum\n",
      key_header);
  for (const PolicyRun& run : report.runs) {
    for (std::size_t p = 0; p < run.iterations.size(); ++p) {
      const IterationRecord& i = run.iterations[p];
      const auto& oom = i.oom;
      text += row({row_key(report, run, p), cell(std::string_view(i.policy)), cell(i.start), cell(i.seconds),
                   cell(i.imbalance), cell(i.imbalance_mean), cell(i.conservative), cell(i.restarted),
                   cell(i.restart_seconds_measured), oom ? cell(oom->rank) : "", oom ? cell(oom->seconds) : "",
                   oom ? cell(std::string_view(oom->operator_name)) : "", cell(i.loss),
                   i.gradient_checksum ? fmt::format("{:016x}", *i.gradient_checksum) : ""});
    }
  }
  return text;
}

std::string rank_iterations_csv(const Report& report) {
  std::string text = fmt::format(
      "{},rank,compute_seconds,mitigation_seconds,hidden_mitigation_seconds,exposed_communication_seconds,"
      "all_to_all_seconds,hidden_all_to_all_seconds,gradient_reduction_seconds,"
      "hidden_gradient_reduction_seconds,overlapped_seconds,overlappable_seconds,bubble_seconds,decision_"
      "seconds,mitigation_flops,"
      "model_flops_causal,model_flops_noncausal,cross_node_bytes,intra_node_bytes\n",
      key_header);
  for (const PolicyRun& run : report.runs) {
    for (std::size_t p = 0; p < run.iterations.size(); ++p) {
      const std::string key = row_key(report, run, p);
      for (const RankRecord& rank : run.ranks) {
        const RankIteration& i = rank.iterations.at(p);
        text +=
            row({key, cell(std::int64_t{rank.rank}), cell(i.compute_seconds), cell(i.mitigation_seconds),
                 cell(i.hidden_mitigation_seconds), cell(i.exposed_communication_seconds), cell(i.all_to_all_seconds),
                 cell(i.hidden_all_to_all_seconds), cell(i.gradient_reduction_seconds),
                 cell(i.hidden_gradient_reduction_seconds), cell(i.overlapped_seconds), cell(i.overlappable_seconds),
                 cell(i.bubble_seconds), report.phantom_data ? "" : cell(i.decision_seconds),
                 cell(i.mitigation_flops.value), cell(i.model_flops_causal.value), cell(i.model_flops_noncausal.value),
                 cell(i.cross_node_bytes.value), cell(i.intra_node_bytes.value)});
      }
    }
  }
  return text;
}

}  // namespace spillway
