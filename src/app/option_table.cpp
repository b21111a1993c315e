#include "app/option_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "plan/policy/policy.hpp"
#include "workload/routing/presets.hpp"

namespace spillway::app {
namespace {

template <class T>
std::string kind_of() {
  if constexpr (std::is_same_v<T, bool>) return "true/false";
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return "integer";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, Bytes>) return "size";
  if constexpr (std::is_same_v<T, Seconds>) return "time";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return "list of text";
  if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) return "list of integers";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "list of numbers";
  if constexpr (std::is_enum_v<T>) return fmt::format("{}", fmt::join(words(T{}), " | "));
}

template <class T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return words(value).at(static_cast<std::size_t>(value));
  } else if constexpr (std::is_same_v<T, Bytes> || std::is_same_v<T, Seconds>) {
    return value.value;
  } else {
    return value;
  }
}

std::string preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string known_policies() { return fmt::format("{}", fmt::join(policy_names(), ", ")); }

struct Meaning {
  std::string unit, text;
  Limits limits{};
  bool compared = true;
};

/// Builds the rows of one section. A field is named by the members that lead to it from Case.
struct Rows {
  std::string prefix;
  std::vector<Option>& table;

  template <class... Members>
  void add(const std::string& name, Meaning meaning, Members... members) {
    const auto field = [members...](auto& c) -> auto& { return (c.*....*members); };
    using Field = std::decay_t<decltype(field(std::declval<Case&>()))>;
    const Limits limits = meaning.limits;
    table.push_back({prefix + name, kind_of<Field>(), meaning.unit, meaning.text, limits, meaning.compared,
                     [field, limits](Case& c, const Value& value) { read(value, limits, field(c)); },
                     [field](const Case& c) { return json_of(field(c)); }});
  }
};

// Ranges: generous, but products of any two sizes stay far below 2^63; validate() looks at whole products.
constexpr double mebi = 1 << 20;
constexpr Limits count{1, mebi}, count_or_none{0, mebi}, steps{1, 0x7fffffff}, seed{0, 9.2e18};
constexpr Limits rate{1, 1e24}, seconds{0, 1e9}, share{0, 1}, ratio{1, 1e6};

void add_case(Rows rows) {
  rows.add("name", {"", "name in reports and of the results folder; the file's name where not given", {}, false},
           &Case::name);
  rows.add("clock", {"", "virtual: time from the machine file; wall: measured time"}, &Case::clock);
  rows.add("allow_oversubscribed", {"", "let more ranks than cores run on the wall clock", {}, false},
           &Case::allow_oversubscribed);
}

void add_model(Rows rows) {
  const auto add = [&rows](const char* name, Meaning meaning, auto member) {
    rows.add(name, std::move(meaning), &Case::model, member);
  };
  rows.add(
      "name",
      {"", "model file: NAME of inputs/models/NAME.toml or a path ending in .toml; short: model = NAME", {}, false},
      &Case::model_name);
  add("hidden_size", {"", "width of the residual stream", count}, &ModelShape::hidden_size);
  add("moe_intermediate_size", {"", "hidden size of one routed expert", count}, &ModelShape::moe_intermediate_size);
  add("num_experts", {"", "routed experts of a layer", count}, &ModelShape::num_experts);
  add("num_experts_per_tok", {"", "experts that a token is sent to (top-k)", count}, &ModelShape::num_experts_per_tok);
  add("num_hidden_layers", {"", "transformer layers, dense ones included", {1, 4096}}, &ModelShape::num_hidden_layers);
  add("first_k_dense_replace", {"", "leading layers with a dense MLP instead of experts", count_or_none},
      &ModelShape::first_k_dense_replace);
  add("intermediate_size", {"", "hidden size of that dense MLP", count_or_none}, &ModelShape::intermediate_size);
  add("shared_expert_intermediate_size", {"", "hidden size of the shared expert; 0: none", count_or_none},
      &ModelShape::shared_expert_intermediate_size);
  add("num_attention_heads", {"", "query heads", count}, &ModelShape::num_attention_heads);
  add("num_key_value_heads", {"", "key and value heads; divides num_attention_heads", count},
      &ModelShape::num_key_value_heads);
  add("head_dim", {"", "size of a head; even", count}, &ModelShape::head_dim);
  add("vocab_size", {"", "rows of the embedding and of the output head", {2, 0x1p30}}, &ModelShape::vocab_size);
  add("head", {"", "embedding, output head and cross-entropy present"}, &ModelShape::head);
  add("bytes_per_element", {"bytes", "4: fp32; 2: BF16 (accounting only)", {2, 4}}, &ModelShape::bytes_per_element);
  add("inventory", {"", "tensors that a block saves for its backward pass"}, &ModelShape::inventory);
}

void add_parallel(Rows rows) {
  const auto add = [&rows](const char* name, const char* meaning, auto member) {
    rows.add(name, {"ranks", meaning, count}, &Case::grid, member);
  };
  add("pipeline_parallel", "pipeline stages", &GridOptions::pipeline_parallel);
  add("data_parallel", "replicas of the non-expert parameters", &GridOptions::data_parallel);
  add("tensor_parallel", "ranks that divide heads, dense hidden sizes, vocabulary and, between products, tokens",
      &GridOptions::tensor_parallel);
  add("expert_parallel", "ranks of an expert group; divides data_parallel x tensor_parallel and num_experts",
      &GridOptions::expert_parallel);
  rows.add("layers_per_stage",
           {"layers",
            "of each stage, [4, 3], or of each chunk in the model's order; empty: even, the first take the rest",
            count},
           &Case::layers_per_stage);
  rows.add("layers_per_virtual_stage",
           {"layers", "of one model chunk of a stage, instead of virtual_stages; 0: virtual_stages", count_or_none},
           &Case::layers_per_virtual_stage);
  rows.add("virtual_stages", {"", "model chunks of every stage; above 1: interleaved", count}, &Case::virtual_stages);
  rows.add("schedule", {"", "order of work on the stages: 1f1b, dual_batch (fused), dual_batch_published or gpipe"},
           &Case::schedule);
  rows.add("fuse", {"", "units of dual_batch run side by side: auto (where members have the memory), always or never"},
           &Case::fuse);
  rows.add("network_thread",
           {"",
            "a thread drives messages on (wall clock): auto (where ranks have a core to spare), always or never",
            {},
            false},
           &Case::network_thread);
  rows.add("check_order",
           {"",
            "compare before every message what the ranks of its group are about to issue; the verification always does",
            {},
            false},
           &Case::check_order);
  rows.add("overlap_gradients",
           {"", "reduce gradients beside cool-down; holds a receive buffer of up to 64 MiB per group of parameters"},
           &Case::overlap_gradients);
}

void add_training(Rows rows) {
  const auto add = [&rows](const char* name, Meaning meaning, auto member) {
    rows.add(name, std::move(meaning), &Case::training, member);
  };
  add("sequence_length", {"tokens", "length of a sequence", {1, 0x1p24}}, &TrainingOptions::sequence_length);
  add("micro_batch_size", {"sequences", "of a micro-batch on one data-parallel rank", count},
      &TrainingOptions::micro_batch_size);
  add("micro_batches", {"", "per iteration and data-parallel rank", count}, &TrainingOptions::micro_batches);
  add("iterations", {"", "training steps", steps}, &TrainingOptions::iterations);
  add("seed", {"", "of weights and tokens", seed}, &TrainingOptions::seed);
  add("learning_rate", {"", "of Adam", {0, 1e6}}, &TrainingOptions::learning_rate);
  add("adam_beta1", {"", "decay of the first moment", {0, 0.999999999}}, &TrainingOptions::adam_beta1);
  add("adam_beta2", {"", "decay of the second moment", {0, 0.999999999}}, &TrainingOptions::adam_beta2);
  add("adam_epsilon", {"", "added to the root of the second moment", {1e-30, 1}}, &TrainingOptions::adam_epsilon);
  add("checkpoint_every", {"iterations", "between snapshots that a restart returns to", steps},
      &TrainingOptions::checkpoint_every);
  add("watchdog_seconds", {"s", "a rank that makes no progress for so long ends the job; 0: never", {0, 1e7}, false},
      &TrainingOptions::watchdog_seconds);
}

void add_routing(Rows rows) {
  const auto add = [&rows](const char* name, Meaning meaning, auto member) {
    rows.add(name, std::move(meaning), &Case::routing, member);
  };
  add("preset", {"", "the workload: " + preset_names()}, &RoutingOptions::preset);
  add("trace",
      {"", "CSV of recorded loads, for preset trace; relative to the case file, its ../traces or the working folder"},
      &RoutingOptions::trace);
  add("seed", {"", "with iteration, layer and sequence number decides every choice", seed}, &RoutingOptions::seed);
  add("reference_ranks", {"ranks", "hot blocks are num_experts / reference_ranks experts each, at any layout", count},
      &RoutingOptions::reference_ranks);
  add("reference_sequences",
      {"sequences", "of a micro-batch of a reference expert group; 0: one per reference rank", {0, 0x1p40}},
      &RoutingOptions::reference_sequences);
  add("reference_stages", {"stages", "of the reference layout: an imbalance is a mean over the layers of one", count},
      &RoutingOptions::reference_stages);
  add("calm", {"max/mean", "imbalance of calm iterations at the reference layout", ratio}, &RoutingOptions::calm);
  add("burst_fraction", {"", "share of iterations inside a burst", share}, &RoutingOptions::burst_fraction);
  add("burst_length", {"iterations", "length of one burst", {1, 1e9}}, &RoutingOptions::burst_length);
  add("peak", {"max/mean", "imbalance of a burst iteration at the reference layout", ratio}, &RoutingOptions::peak);
  add("hot_share", {"", "share of an iteration's sequences that are hot in a burst", share},
      &RoutingOptions::hot_share);
  add("same_block", {"", "the hot block is the same in every layer"}, &RoutingOptions::same_block);
  add("exchanges_per_token", {"", "co-activation: 0 = cliques, many = uniform", {0, 1e4}},
      &RoutingOptions::exchanges_per_token);
}

void add_memory(Rows rows) {
  rows.add("cap", {"bytes", "hard limit of the live blocks of every rank", {1, 0x1p60}}, &Case::memory,
           &MemoryOptions::cap);
  rows.add("host_cap", {"bytes", "the same of offloaded blocks in every rank's host tier", {0, 0x1p60}}, &Case::memory,
           &MemoryOptions::host_cap);
  rows.add("alignment", {"bytes", "blocks are rounded up to a multiple of it; a power of two", {1, 0x1p30}},
           &Case::memory, &MemoryOptions::alignment);
}

void add_provisioning(Rows rows) {
  const auto add = [&rows](const char* name, Meaning meaning, auto member) {
    rows.add(name, std::move(meaning), &Case::provisioning, member);
  };
  add("policies", {"", "compared one after the other on the same routing: " + known_policies(), {}, false},
      &ProvisioningOptions::policies);
  add("margin", {"x balance", "load that static policies plan for", ratio}, &ProvisioningOptions::margin);
  add("fallback", {"", "policy after an out-of-memory event"}, &ProvisioningOptions::fallback);
  add("calm_imbalance", {"max/mean", "at or below it a spike is over", ratio}, &ProvisioningOptions::calm_imbalance);
  add("calm_iterations", {"iterations", "consecutive calm ones before restarting back", steps},
      &ProvisioningOptions::calm_iterations);
  add("predicted_iterations",
      {"iterations", "the first of each policy whose seconds the cost model predicts; 0: none", {0, 0x7fffffff}, false},
      &ProvisioningOptions::predicted_iterations);
  add("margins",
      {"x balance", "loads to plan for at which static policies are projected too, [1.0, 1.5]", ratio, false},
      &ProvisioningOptions::margins);
}

/// Settings of single policies, each in a section of its name.
void add_policies(std::vector<Option>& table) {
  const auto add = [&table](const char* section, const char* name, Meaning meaning, auto member) {
    meaning.compared = false;  // how a policy decides is what is compared
    Rows{std::string(section) + ".", table}.add(name, std::move(meaning), &Case::provisioning,
                                                &ProvisioningOptions::options, member);
  };
  add("flexible", "choice", {"", "greedy: largest memory reduction first; ratio: least exposed time per byte first"},
      &PolicyOptions::choice);
  add("flexible", "share", {"", "of the memory left; level: the same for all that is to come; published: Algorithm 1"},
      &PolicyOptions::share);
  add("flexible", "quantize", {"", "let flexible and unified store tensors as FP8: gradients become inexact"},
      &PolicyOptions::quantize);
  add("unified", "worst_load", {"x balance", "load that unified plans for", ratio}, &PolicyOptions::worst_load);
  add("kuai", "smallest", {"bytes", "smaller tensors are not offloaded", {0, 0x1p50}}, &PolicyOptions::kuai_smallest);
  add("paged", "pool",
      {"bytes", "of expert activations on the device; 0: what is left at the planned load", {0, 0x1p60}},
      &PolicyOptions::paged_pool);
  add("replay", "file", {"", "decisions as --decisions writes them; relative to the case file or the working folder"},
      &PolicyOptions::replay_file);
}

void add_machine(Rows rows) {
  const auto add = [&rows](const char* name, Meaning meaning, auto member) {
    rows.add(name, std::move(meaning), &Case::machine, member);
  };
  add("name",
      {"",
       "machine file: NAME of inputs/machines/NAME.toml or a path ending in .toml; short: machine = NAME",
       {},
       false},
      &MachineProfile::name);
  add("peak_flops", {"FLOP/s", "dense peak of one rank's device", rate}, &MachineProfile::peak_flops);
  add("gemm_efficiency", {"", "share of the peak that matrix products reach", {1e-6, 1}},
      &MachineProfile::gemm_efficiency);
  add("memory_bandwidth", {"bytes/s", "of device memory", rate}, &MachineProfile::memory_bandwidth);
  add("launch", {"s", "least time of an operator", seconds}, &MachineProfile::launch);
  add("node_bandwidth", {"bytes/s", "of one rank to ranks of its node", rate}, &MachineProfile::node_bandwidth);
  add("network_bandwidth", {"bytes/s", "of one rank to other nodes", rate}, &MachineProfile::network_bandwidth);
  add("node_latency", {"s", "of a message inside a node", seconds}, &MachineProfile::node_latency);
  add("network_latency", {"s", "of a message between nodes", seconds}, &MachineProfile::network_latency);
  add("link_bandwidth", {"bytes/s", "between device and host, each way", rate}, &MachineProfile::link_bandwidth);
  add("ranks_per_node", {"ranks", "consecutive ranks that share a node", count}, &MachineProfile::ranks_per_node);
  add("interference", {"", "slow-down of computation while a copy or a message is under way", {1, 1000}},
      &MachineProfile::interference);
  add("restart_seconds", {"s", "charged for one restart", seconds}, &MachineProfile::restart_seconds);
  add("shared_memory", {"", "host and device memory are one: offloading frees nothing"},
      &MachineProfile::shared_memory);
}

}  // namespace

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = [] {
    std::vector<Option> rows;
    add_case({"", rows});
    add_model({"model.", rows});
    add_parallel({"parallel.", rows});
    add_training({"training.", rows});
    add_routing({"routing.", rows});
    add_memory({"memory.", rows});
    add_provisioning({"provisioning.", rows});
    add_policies(rows);
    add_machine({"machine.", rows});
    return rows;
  }();
  return table;
}

}  // namespace spillway::app
