#include "metrics/report_json.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "metrics/atomic_file.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json value(double v) { return v; }  // a value that is not finite is written as null
Json value(std::int64_t v) { return v; }
Json value(const std::string& v) { return v; }
Json value(Seconds v) { return v.value; }
Json value(Bytes v) { return v.value; }
template <class T>
Json value(const std::optional<T>& v) {
  return v ? value(*v) : Json();
}

/// A whole number: an integer where 64 bits hold it.
Json whole(const std::optional<double>& v) {
  if (!v) return {};
  return std::abs(*v) < 0x1p63 ? Json(static_cast<std::int64_t>(*v)) : Json(*v);
}

Json hex(const std::optional<std::uint64_t>& v) { return v ? Json(fmt::format("{:016x}", *v)) : Json(); }

const char* name(IterationEvent event) {
  switch (event) {
    case IterationEvent::oom:
      return "oom";
    case IterationEvent::restart:
      return "restart";
    case IterationEvent::none:
      break;
  }
  return "none";
}

Json figures(const std::optional<FiguresOfMerit>& fom) {
  if (!fom) return {};
  return {{"tokens_per_second", fom->tokens_per_second},
          {"effective_mfu", fom->effective_mfu},
          {"effective_tflops", fom->effective_tflops},
          {"provisioning_efficiency", value(fom->provisioning_efficiency)}};
}

Json spread(const std::optional<Distribution>& d) {
  const auto part = [&](Seconds Distribution::*column) { return d ? value((*d).*column) : Json(); };
  return {{"mean", part(&Distribution::mean)},
          {"p50", part(&Distribution::p50)},
          {"p95", part(&Distribution::p95)},
          {"max", part(&Distribution::max)}};
}

Json parts(const LostSeconds& lost) {
  return {{"exposed_mitigation", value(lost.exposed_mitigation)},
          {"conservative", value(lost.conservative)},
          {"lost_work", value(lost.lost_work)},
          {"cold_start", value(lost.cold_start)},
          {"waiting", value(lost.waiting)}};
}

Json peaks(const std::optional<PeakBytes>& peak) {
  Json json = {{"total", peak ? value(peak->total) : Json()}};
  for (std::size_t c = 0; c < category_count; ++c) {
    json[std::string(category_names[c])] = peak ? value(peak->category[c]) : Json();
  }
  return json;
}

/// Appends the columns of `s` in the published order.
void add_time(Json& json, const Summary& s) {
  json["mfu_causal"] = value(s.mfu_causal);
  json["mfu_noncausal"] = value(s.mfu_noncausal);
  json["hfu_causal"] = value(s.hfu_causal);
  json["model_flops"] = value(s.model_flops);
  json["iteration_seconds"] = spread(s.iteration_seconds);
  json["oom_events"] = value(s.oom_events);
  json["restarts"] = value(s.restarts);
  json["restart_seconds"] = value(s.restart_seconds);
  json["restart_seconds_measured"] = value(s.restart_seconds_measured);
  json["restart_equivalent_cost"] = value(s.restart_equivalent_cost);
  json["oracle"] = value(s.oracle);
  json["oracle_reason"] = value(s.oracle_reason);
  json["peak_source"] = value(s.peak_source);
  json["lost_seconds"] = parts(s.lost_seconds);
  json["conservative_iterations"] = value(s.conservative_iterations);
  json["exposed_communication_seconds"] = value(s.exposed_communication_seconds);
  json["hidden_fraction"] = {{"mitigation", value(s.hidden_mitigation)},
                             {"all_to_all", value(s.hidden_all_to_all)},
                             {"gradient_reduction", value(s.hidden_gradient_reduction)}};
  json["overlap_efficiency"] = value(s.overlap_efficiency);
  json["bubble_fraction"] = value(s.bubble_fraction);
  json["decision_seconds"] = value(s.decision_seconds);
  json["plan_cache_hit_rate"] = value(s.plan_cache_hit_rate);
}

void add_load_and_memory(Json& json, const Summary& s) {
  json["predicted_activation_error"] = value(s.predicted_activation_error);
  json["predicted_seconds_error"] = value(s.predicted_seconds_error);
  json["cross_node_bytes"] = whole(s.cross_node_bytes);
  json["intra_node_bytes"] = whole(s.intra_node_bytes);
  json["migration_bytes"] = value(s.migration_bytes);
  json["distinct_nodes_per_token"] = value(s.distinct_nodes_per_token);
  json["ochiai_mean"] = value(s.ochiai_mean);
  json["overload"] = {{"avg", value(s.overload_avg)},
                      {"max", value(s.overload_max)},
                      {"max_cum", value(s.overload_max_cum)}};
  json["rank_imbalance"] = value(s.rank_imbalance);
  json["peak_bytes"] = peaks(s.peak);
  json["peak_host_bytes"] = value(s.peak_host_bytes);
  json["reserved_bytes"] = value(s.reserved_bytes);
  json["loss_first"] = value(s.loss_first);
  json["loss_last"] = value(s.loss_last);
}

Json columns(const Summary& s) {
  Json json = Json::object();
  add_time(json, s);
  add_load_and_memory(json, s);
  return json;
}

Json rank_json(const RankRecord& rank, const Summary& s) {
  Json json = {{"rank", rank.rank},
               {"host", rank.host},
               {"coordinates",
                {{"pipeline", rank.pipeline},
                 {"data", rank.data},
                 {"tensor", rank.tensor},
                 {"expert", rank.expert},
                 {"expert_replica", rank.expert_replica}}}};
  add_time(json, s);
  add_load_and_memory(json, s);
  return json;
}

Json iteration_json(const IterationRecord& i) {
  Json oom;
  if (i.oom) oom = {{"rank", i.oom->rank}, {"seconds", i.oom->seconds.value}, {"operator", i.oom->operator_name}};
  return {{"index", i.index},
          {"start_seconds", i.start.value},
          {"seconds", i.seconds.value},
          {"imbalance", i.imbalance},
          {"imbalance_mean", i.imbalance_mean},
          {"policy", i.policy},
          {"conservative", i.conservative},
          {"event", name(i.event())},
          {"restarted", i.restarted},
          {"restart_seconds_measured", value(i.restart_seconds_measured)},
          {"oom", oom},
          {"loss", value(i.loss)},
          {"gradient_checksum", hex(i.gradient_checksum)}};
}

Json run_json(const PolicyRun& run, const Evaluation& evaluation) {
  Json json = {{"policy", run.policy},
               {"valid", run.infeasible ? Json() : Json(run.reasons.empty())},
               {"infeasible", value(run.infeasible)},
               {"reasons", run.reasons},
               {"fom", figures(evaluation.fom)},
               {"summary", columns(evaluation.job)},
               {"ranks", Json::array()},
               {"iterations", Json::array()}};
  for (std::size_t r = 0; r < evaluation.ranks.size(); ++r) {
    json["ranks"].push_back(rank_json(run.ranks[r], evaluation.ranks[r]));
  }
  for (const IterationRecord& iteration : run.iterations) json["iterations"].push_back(iteration_json(iteration));
  return json;
}

}  // namespace

Json to_json(const Report& report, const std::vector<Evaluation>& evaluations) {
  ensure(report.runs.size() == evaluations.size(), "{} runs but {} evaluations", report.runs.size(),
         evaluations.size());
  const std::vector<std::string> reasons = invalid_reasons(report);
  Json json = {{"schema", result_schema},
               {"valid", reasons.empty()},
               {"reasons", reasons},
               {"clock", report.virtual_clock ? "virtual" : "wall"},
               {"data", report.phantom_data ? "phantom" : "real"},
               {"case", report.case_name},
               {"hash", report.hash},
               {"workload_checksum", hex(report.workload_checksum)},
               {"config", report.config},
               {"environment", report.environment},
               {"runs", Json::array()},
               {"margins", Json::array()}};
  for (const MarginPoint& p : report.margins)
    json["margins"].push_back({{"policy", p.policy},
                               {"margin", p.margin},
                               {"tokens_per_second", value(p.tokens_per_second)},
                               {"oom_events", p.oom_events},
                               {"restarts", p.restarts}});
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    json["runs"].push_back(run_json(report.runs[i], evaluations[i]));
  }
  return json;
}

void write_json(const Report& report, const std::vector<Evaluation>& evaluations, const std::filesystem::path& path) {
  const Json json = to_json(report, evaluations);
  write_atomically(path, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace spillway
