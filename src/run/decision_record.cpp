#include "run/decision_record.hpp"

#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "plan/policy/conflicts.hpp"
#include "plan/policy/group_choice.hpp"
#include "run/policy_run.hpp"

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

Treatment treatment_named(const std::string& text) {
  for (const Treatment t : {Treatment::recompute, Treatment::offload, Treatment::quantize})
    if (name(t) == text) return t;
  throw InputError(fmt::format("there is no treatment \"{}\"; known: recompute, offload, quantize", text));
}

Mitigations read_treatments(const Json& line, const char* when) {
  const Json& json = line.at(when);
  require_input(json.is_object(), "\"{}\" is {}: expected {{treatment: [tensors]}}", when, json.dump());
  Mitigations m = Mitigations::keep_all();
  for (const auto& [key, list] : json.items()) {
    const Treatment treatment = treatment_named(key);
    require_input(list.is_array(), "\"{}\" of \"{}\" is {}: expected a list of tensors", key, when, list.dump());
    for (const Json& entry : list) {
      const Tensor t = tensor_named(entry.get<std::string>());
      require_input(m.of(t) == Treatment::keep, "\"{}\" treats {} twice", when, name(t));
      m.set(t, treatment);
    }
  }
  return m;
}

/// A whole number in [0, end).
std::int64_t index(const Json& line, const char* key, std::int64_t end) {
  const Json& json = line.at(key);
  require_input(json.is_number_integer() && json >= 0 && json < end, "\"{}\" is {}: expected a whole number, 0 to {}",
                key, json.dump(), end - 1);
  return json.get<std::int64_t>();
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

/// What a tensor-parallel group must agree on: which tensors are computed again together. All but the last are settled
/// before the gate.
unsigned long long together_again(const Decision& d) {
  TensorSet again;
  for (const Tensor t : {Tensor::qkv, Tensor::mlp_fc1_output, Tensor::logits_gradient, Tensor::mlp_norm_input}) {
    const Treatment first = t == Tensor::mlp_norm_input ? Treatment::keep : d.before.of(t);
    if ((first == Treatment::keep ? d.after.of(t) : first) == Treatment::recompute) again.insert(t);
  }
  return again.bits();
}

using Covered = std::set<std::array<std::int64_t, 4>>;  // [rank, iteration, micro-batch, block]

void require_all(const Covered& covered, const ReplayScope& scope, const std::string& file) {
  for (int r = 0; r < scope.grid.ranks(); ++r)
    for (std::int64_t i = 0; i < scope.iterations; ++i)
      for (std::int64_t mb = 0; mb < scope.micro_batches; ++mb)
        for (std::int64_t b = 0; b < scope.blocks[static_cast<std::size_t>(scope.grid.coordinates(r).pipeline)]; ++b)
          require_input(covered.contains({r, i, mb, b}),
                        "{}: no decision for iteration {}, micro-batch {}, block {} of rank {}; export them all with "
                        "--decisions",
                        file, i, mb, b, r);
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

ReplayScope replay_scope(const Case& c) {
  ReplayScope scope{Grid(c.grid), c.training.iterations, c.training.micro_batches, {}};
  for (int stage = 0; stage < scope.grid.pipeline(); ++stage)
    scope.blocks.push_back(std::ssize(stage_blocks(stage_setup(c), stage)));
  return scope;
}

DecisionTable read_decisions(const std::string& text, const std::string& file, const ReplayScope& scope, int rank) {
  constexpr std::int64_t any = std::int64_t{1} << 62;
  DecisionTable table;
  std::map<std::array<std::int64_t, 5>, Collectives> agreed;  // by [iteration, stage, replica, micro-batch, block]
  std::map<std::array<std::int64_t, 5>, unsigned long long>
      together;  // by [iteration, stage, data, micro-batch, block]
  Covered covered;
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
      const int of_rank = static_cast<int>(index(json, "rank", scope.grid.ranks()));
      const Coordinates at = scope.grid.coordinates(of_rank);
      const std::int64_t iteration = index(json, "iteration", any),
                         mb = index(json, "micro_batch", scope.micro_batches);
      const std::int64_t block = index(json, "block", scope.blocks[static_cast<std::size_t>(at.pipeline)]);
      Decision d{read_treatments(json, "before"), read_treatments(json, "after")};
      d.after.tiles_per_slice = index(json, "tiles_per_slice", any);
      const auto [first, is_new] =
          agreed.try_emplace({iteration, at.pipeline, at.expert_replica, mb, block}, collectives(d));
      require_input(first->second == collectives(d),
                    "rank {} does not take part in the same collectives as the ranks of its expert group before it: "
                    "slices and recomputed dispatches must agree (iteration {}, micro-batch {}, block {})",
                    of_rank, iteration, mb, block);
      const auto again = together.try_emplace({iteration, at.pipeline, at.data, mb, block}, together_again(d)).first;
      require_input(
          scope.grid.tensor() == 1 || again->second == together_again(d),
          "rank {} does not recompute together with the ranks of its tensor-parallel group before it: qkv, "
          "mlp_norm_input, mlp_fc1_output and logits_gradient must agree (iteration {}, micro-batch {}, block {})",
          of_rank, iteration, mb, block);
      if (!(d.before.quantize | d.after.quantize).empty()) table.set_quantizes();
      if (of_rank == rank) table.set({iteration, mb, block}, d);
      covered.insert({of_rank, iteration, mb, block});
    } catch (const std::exception& error) {
      throw InputError(fmt::format("{}:{}: not a decision: {}", file, number, error.what()));
    }
  }
  require_all(covered, scope, file);
  return table;
}

}  // namespace spillway
