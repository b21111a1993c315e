// The facts of `spillway plan` as JSON.
#include "app/plan_report.hpp"

namespace spillway::app {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json layout_json(const PlanReport& r) {
  const Grid grid(r.planned->grid);
  std::vector<std::int64_t> stages;
  for (const StaticFacts& s : r.stages) stages.push_back(s.layers);
  return {{"ranks", grid.ranks()},
          {"expert_replicas", grid.expert_replicas()},
          {"layers_of_stages", stages},
          {"layers_of_pieces", r.setup.stage.layers_of_pieces},
          {"chunks_per_stage", r.setup.stage.chunks()},
          {"micro_batches", r.setup.micro_batches},
          {"tokens_per_iteration", r.planned->tokens_per_iteration()}};
}

Json model_json(const PlanReport& r) {
  return {{"parameters",
           {{"total", r.parameters.total()},
            {"active", r.active},
            {"experts", r.parameters.experts},
            {"other", r.parameters.other},
            {"embedding", r.parameters.embedding}}},
          {"flops_per_token", {{"causal", r.token_flops.causal}, {"noncausal", r.token_flops.noncausal}}},
          {"flops_per_iteration", r.iteration_flops()},
          {"seconds_at_peak", r.seconds_at_peak().value}};
}

Json static_json(const PlanReport& r) {
  Json list = Json::array();
  for (std::size_t i = 0; i < r.stages.size(); ++i) {
    const StaticFacts& s = r.stages[i];
    list.push_back({{"stage", i},
                    {"layers", s.layers},
                    {"live_pairs", s.live_pairs},
                    {"live_micro_batches", s.live_micro_batches},
                    {"parameters_per_rank", {{"dense", s.dense}, {"expert", s.expert}}},
                    {"static_bytes",
                     {{"parameters", s.parameters.value},
                      {"gradients", s.gradients.value},
                      {"optimizer", s.optimizer.value},
                      {"communication", s.communication.value},
                      {"total", s.total().value}}}});
  }
  return list;
}

Json layer_json(const PlanReport& r) {
  Json policies = Json::array();
  for (const TreatmentFacts& t : r.treatments) {
    Json tensors = Json::array();
    for (const TensorTreatment& tensor : t.tensors)
      tensors.push_back(
          {{"tensor", name(tensor.tensor)}, {"bytes", tensor.bytes.value}, {"treatment", name(tensor.treatment)}});
    policies.push_back({{"policy", t.policy},
                        {"load_from", t.follows_load ? Json(t.load_from) : Json(nullptr)},
                        {"load_to", t.follows_load ? Json(t.load_to) : Json(nullptr)},
                        {"tensors", std::move(tensors)}});
  }
  return {{"kind", name(r.layer.kind)}, {"treatments", std::move(policies)}};
}

Json peaks_json(const ByteLedger& ledger) {
  Json json = {{"total", ledger.peak().value}};
  for (std::size_t i = 0; i < category_count; ++i)
    json[std::string(category_names[i])] = ledger.peak(static_cast<Category>(i)).value;
  return json;
}

Json stage_json(const PlanReport& r, const PolicyPeaks& policy, int stage) {
  const StagePeaks& peaks = policy.stages[stage];
  const LoadAxis& axis = r.memory.axis;
  Json loads = Json::array();
  for (std::size_t i = 0; i < peaks.at.size(); ++i)
    loads.push_back({{"load", axis.loads[i]},
                     {"rows", axis.rows(axis.loads[i])},
                     {"peak_bytes", peaks.at[i].device.value},
                     {"peak_host_bytes", peaks.at[i].host.value}});
  return {{"stage", stage},
          {"fits_at_balance", or_null(r.fits(policy, stage, r.balance))},
          {"fits_at_margin", or_null(r.fits(policy, stage, r.margin))},
          {"rows_that_fit", or_null(peaks.rows_that_fit)},
          {"stops_fitting_at", or_null(r.stops_at(peaks.rows_that_fit))},
          {"least_bytes", peaks.least ? Json(peaks.least->value) : Json(nullptr)},
          {"balance_peak_bytes", peaks.balance ? peaks_json(*peaks.balance) : Json(nullptr)},
          {"loads", std::move(loads)}};
}

Json policies_json(const PlanReport& r) {
  Json list = Json::array();
  for (const PolicyPeaks& policy : r.memory.policies) {
    Json stages = Json::array();
    for (int stage = 0; stage < static_cast<int>(policy.stages.size()); ++stage)
      stages.push_back(stage_json(r, policy, stage));
    list.push_back({{"policy", policy.policy.name},
                    {"obeys_cap", policy.obeys_cap},
                    {"adapts", policy.adapts},
                    {"no_forecast", policy.no_forecast.empty() ? Json(nullptr) : Json(policy.no_forecast)},
                    {"fits_at_balance", or_null(r.fits(policy, r.balance))},
                    {"fits_at_margin", or_null(r.fits(policy, r.margin))},
                    {"stops_fitting_at", or_null(r.stops_at(policy.rows_that_fit()))},
                    {"worst_stage", policy.has_bytes() ? Json(policy.worst_stage(r.balance)) : Json(nullptr)},
                    {"ordinary_stage", policy.has_bytes() ? Json(policy.ordinary_stage(r.balance)) : Json(nullptr)},
                    {"stages", std::move(stages)}});
  }
  return list;
}

}  // namespace

Json plan_json(const PlanReport& r) {
  const LoadAxis& axis = r.memory.axis;
  return {{"schema", "spillway-plan-1"},
          {"version", SPILLWAY_VERSION},
          {"case", r.planned->name},
          {"warnings", r.warnings},
          {"config", config_json(*r.planned)},
          {"model", model_json(r)},
          {"layout", layout_json(r)},
          {"load",
           {{"balanced_rows", axis.balanced},
            {"most_rows", axis.most},
            {"bound", axis.bound()},
            {"margin", r.planned->provisioning.margin}}},
          {"cap_bytes", r.planned->memory.cap.value},
          {"stages", static_json(r)},
          {"layer", layer_json(r)},
          {"policies", policies_json(r)}};
}

}  // namespace spillway::app
