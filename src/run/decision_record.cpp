#include "run/decision_record.hpp"

#include <sstream>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "plan/policy/conflicts.hpp"
#include "plan/policy/group_choice.hpp"

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

Json treatments(const Mitigations& m, const StageBlock& block) {
  Json json = Json::object();
  for (const Tensor t : Assignment(block.kind, block.context).tensors())
    if (m.of(t) != Treatment::keep) json[std::string(name(m.of(t)))].push_back(name(t));
  return json;
}

Tensor tensor_named(const std::string& text) {
  std::vector<std::string> known;
  for (std::size_t t = 0; t < tensor_count; ++t) {
    if (name(static_cast<Tensor>(t)) == text) return static_cast<Tensor>(t);
    known.emplace_back(name(static_cast<Tensor>(t)));
  }
  throw InputError(fmt::format("there is no tensor \"{}\"; nearest: {}", text, nearest(text, known)));
}

Mitigations read_treatments(const Json& json) {
  Mitigations m = Mitigations::keep_all();
  for (const auto& [key, list] : json.items()) {
    Treatment treatment{};
    if (key == "recompute")
      treatment = Treatment::recompute;
    else if (key == "offload")
      treatment = Treatment::offload;
    else if (key == "quantize")
      treatment = Treatment::quantize;
    else
      throw InputError(fmt::format("there is no treatment \"{}\"; known: recompute, offload, quantize", key));
    for (const Json& t : list) m.set(tensor_named(t.get<std::string>()), treatment);
  }
  return m;
}

/// What an expert group must agree on.
struct Collectives {
  std::int64_t tiles_per_slice;
  unsigned long long dispatched_again;
  bool operator==(const Collectives&) const = default;
};

Collectives collectives(const Decision& d) {
  TensorSet again;
  for (const Tensor t : {Tensor::fc1_input, Tensor::row_weight, Tensor::returned_rows})
    if (d.after.of(t) == Treatment::recompute) again.insert(t);
  return {d.after.tiles_per_slice, again.bits()};
}

}  // namespace

std::vector<DecisionRecord> record_decisions(const StepPlan& plan, std::int64_t iteration) {
  std::vector<DecisionRecord> list;
  const int blocks = static_cast<int>(plan.blocks().size());
  for (int mb = 0; mb < plan.micro_batches(); ++mb)
    for (int b = 0; b < blocks; ++b) {
      if (!plan.decided(mb, b)) continue;
      list.push_back({iteration,
                      0,
                      mb,
                      b,
                      plan.blocks()[static_cast<std::size_t>(b)].layer,
                      {plan.before_gate(mb, b), plan.mitigations(mb, b)},
                      plan.rows(mb, b).whole,
                      plan.budget(mb, b)});
    }
  return list;
}

Json to_json(const DecisionRecord& r, const StepPlan& plan, const std::string& policy) {
  const StageBlock& block = plan.blocks()[static_cast<std::size_t>(r.block)];
  Json json;
  json["policy"] = policy;
  json["iteration"] = r.iteration;
  json["rank"] = r.rank;
  json["micro_batch"] = r.micro_batch;
  json["block"] = r.block;
  json["layer"] = r.layer;
  json["rows"] = r.rows.rows;
  const Budget& b = r.budget;
  json["budget_bytes"] = {{"forward", b.forward.value},
                          {"held", b.held.value},
                          {"ready", b.ready.value},
                          {"backward", b.backward.value},
                          {"host", b.host.value}};
  json["before"] = treatments(r.decision.before, block);
  json["after"] = treatments(r.decision.after, block);
  json["tiles_per_slice"] = r.decision.after.tiles_per_slice;
  return json;
}

DecisionTable read_decisions(const std::string& text, const std::string& file, const Grid& grid, int rank) {
  DecisionTable table;
  std::map<std::array<std::int64_t, 5>, Collectives> agreed;  // by [iteration, stage, replica, micro-batch, block]
  std::istringstream lines(text);
  std::string line, first_policy;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.empty()) continue;
    try {
      const Json json = Json::parse(line);
      const auto policy = json.at("policy").get<std::string>();
      require_input(first_policy.empty() || policy == first_policy,
                    "decisions of {} after those of {}: replay carries out one policy's; export one at a time", policy,
                    first_policy);
      first_policy = policy;
      const auto of_rank = json.at("rank").get<int>();
      require_input(of_rank >= 0 && of_rank < grid.ranks(), "rank {} of a job of {}", of_rank, grid.ranks());
      Decision d{read_treatments(json.at("before")), read_treatments(json.at("after"))};
      d.after.tiles_per_slice = json.at("tiles_per_slice").get<std::int64_t>();
      require_input(d.after.tiles_per_slice >= 0, "tiles_per_slice = {}: must be at least 0", d.after.tiles_per_slice);
      const auto iteration = json.at("iteration").get<std::int64_t>();
      const auto mb = json.at("micro_batch").get<std::int64_t>(), block = json.at("block").get<std::int64_t>();
      const Coordinates at = grid.coordinates(of_rank);
      const auto [first, is_new] =
          agreed.try_emplace({iteration, at.pipeline, at.expert_replica, mb, block}, collectives(d));
      require_input(first->second == collectives(d),
                    "rank {} does not take part in the same collectives as the ranks of its expert group before it: "
                    "slices and recomputed dispatches must agree (iteration {}, micro-batch {}, block {})",
                    of_rank, iteration, mb, block);
      if (of_rank == rank) table.set({iteration, mb, block}, d);
    } catch (const std::exception& error) {
      throw InputError(fmt::format("{}:{}: not a decision: {}", file, number, error.what()));
    }
  }
  return table;
}

}  // namespace spillway
