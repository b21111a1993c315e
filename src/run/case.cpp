#include "run/case.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "plan/policy/policy.hpp"
#include "plan/schedule/fused_units.hpp"
#include "plan/schedule/schedule_table.hpp"

namespace spillway {
namespace {

using std::int64_t;

void at_least(const char* key, int64_t value, int64_t least) {
  require_input(value >= least, "{} = {}: must be at least {}", key, value, least);
}

void within(const char* key, double value, double least, double most) {
  require_input(value >= least && value <= most, "{} = {}: must lie between {} and {}", key, value, least, most);
}

/// Products of sizes must stay exact in 64-bit counters; computed in double, where they cannot wrap around.
void validate_magnitudes(const Case& c) {
  const ModelShape& m = c.model;
  const auto d = [](int64_t value) { return static_cast<double>(value); };
  const double attention = d(m.hidden_size) * d(m.head_dim) * 2 * (d(m.num_attention_heads) + d(m.num_key_value_heads));
  const double experts = 3 * d(m.hidden_size) * d(m.moe_intermediate_size) * d(m.num_experts);
  const double mlps = 3 * d(m.hidden_size) * (d(m.intermediate_size) + d(m.shared_expert_intermediate_size));
  const double parameters =
      d(m.num_hidden_layers) * (attention + experts + mlps + d(m.hidden_size) * d(m.num_experts)) +
      2 * d(m.hidden_size) * d(m.vocab_size);
  require_input(parameters < 0x1p53,
                "the model would have {:.3g} parameters, more than 2^53: check hidden_size = {}, "
                "moe_intermediate_size = {}, num_experts = {}, num_hidden_layers = {}",
                parameters, m.hidden_size, m.moe_intermediate_size, m.num_experts, m.num_hidden_layers);
  const double tokens = d(c.training.sequence_length) * d(c.training.micro_batch_size);
  const double job_tokens = tokens * d(c.training.micro_batches) * d(c.grid.data_parallel) * d(c.training.iterations);
  require_input(job_tokens < 0x1p53,
                "the job would see {:.3g} tokens, more than 2^53 = sequence_length {} x "
                "micro_batch_size {} x micro_batches {} x data_parallel {} x iterations {}",
                job_tokens, c.training.sequence_length, c.training.micro_batch_size, c.training.micro_batches,
                c.grid.data_parallel, c.training.iterations);
  const double widest = d(m.num_experts_per_tok) * std::max(d(m.hidden_size), 2 * d(m.moe_intermediate_size)) +
                        d(m.qkv_size()) + d(m.intermediate_size) + d(m.shared_expert_intermediate_size) +
                        d(m.num_experts) + d(m.vocab_size);
  require_input(tokens * widest * 16 < 0x1p60,
                "one micro-batch of {:.3g} tokens (sequence_length {} x micro_batch_size {}) would need tensors beyond "
                "2^60 bytes",
                tokens, c.training.sequence_length, c.training.micro_batch_size);
}

/// Divisors of `whole` next to `wanted` from below and from above (as far as they exist), ascending.
std::vector<int64_t> nearest_divisors(int64_t whole, int64_t wanted) {
  std::vector<int64_t> found;
  int64_t below = std::min(wanted, whole), above = wanted;
  while (below > 1 && whole % below != 0) --below;
  while (above < whole && whole % above != 0) ++above;
  found.push_back(below);
  if (above <= whole && above != below) found.push_back(above);
  return found;
}

/// Layers over stages, and over their chunks.
void validate_layers(const Case& c) {
  const int64_t layers = c.model.num_hidden_layers, stages = c.grid.pipeline_parallel;
  at_least("virtual_stages", c.virtual_stages, 1);
  at_least("layers_per_virtual_stage", c.layers_per_virtual_stage, 0);
  require_input(layers >= stages,
                "num_hidden_layers = {} on pipeline_parallel = {} stages leaves {} stages without a layer; use at most "
                "{} stages",
                layers, stages, stages - layers, layers);
  if (const int64_t chunk = c.layers_per_virtual_stage; chunk > 0) {
    require_input(
        c.virtual_stages == 1,
        "layers_per_virtual_stage = {} and virtual_stages = {} both cut the stages into chunks; set one of them", chunk,
        c.virtual_stages);
    require_input(c.layers_per_stage.empty(),
                  "layers_per_virtual_stage = {} with layers_per_stage = {}: chunks of unlike sizes are stated by "
                  "virtual_stages and one entry of layers_per_stage per chunk",
                  chunk, fmt::join(c.layers_per_stage, " + "));
    require_input(
        layers % stages == 0,
        "layers_per_virtual_stage = {} needs as many layers on every stage, but {} layers on {} stages are {} "
        "each and {} over; set virtual_stages instead, whose chunks may differ by a layer",
        chunk, layers, stages, layers / stages, layers % stages);
    const int64_t of_stage = layers / stages;
    require_input(of_stage % chunk == 0,
                  "layers_per_virtual_stage = {} does not divide the {} layers of a stage ({} = {} x {} + {}); nearest "
                  "that do: {}",
                  chunk, of_stage, of_stage, of_stage / chunk, chunk, of_stage % chunk,
                  fmt::join(nearest_divisors(of_stage, chunk), " or "));
  }
  require_input(
      c.virtual_stages <= layers / stages,
      "virtual_stages = {} on pipeline_parallel = {} stages: {} layers leave some of them without one; use at "
      "most {} virtual stages",
      c.virtual_stages, stages, layers, layers / stages);
  const int64_t chunks = chunks_of_stages(c), pieces = chunks * stages;
  if (c.layers_per_stage.empty()) return;
  const auto& list = c.layers_per_stage;
  const int64_t sum = std::accumulate(list.begin(), list.end(), int64_t{0});
  require_input(static_cast<int64_t>(list.size()) == pieces,
                "layers_per_stage has {} entries ({}) for {} = pipeline_parallel {} x virtual_stages {}", list.size(),
                fmt::join(list, " + "), pieces, stages, chunks);
  require_input(std::all_of(list.begin(), list.end(), [](int64_t n) { return n >= 1; }),
                "layers_per_stage = {}: every stage and chunk needs a layer", fmt::join(list, " + "));
  require_input(sum == layers, "layers_per_stage = {} = {} layers, but num_hidden_layers = {}: {} would be {}",
                fmt::join(list, " + "), sum, layers, std::abs(sum - layers), sum < layers ? "left out" : "invented");
}

void validate_schedule(const Case& c) {
  const ScheduleEntry& entry = find_schedule(c.schedule);
  require_input(entry.interleaves || chunks_of_stages(c) == 1,
                "schedule = {} runs a stage in one piece, but it has {} virtual stages; set schedule = 1f1b or "
                "virtual_stages = 1",
                c.schedule, chunks_of_stages(c));
}

/// Ranks of a tensor-parallel group take equal shares of heads, of dense hidden sizes and of the sequence (sequence
/// parallelism).
void validate_tensor_parallel(const Case& c) {
  const int64_t t = c.grid.tensor_parallel;
  int64_t common = 0;  // what divides it divides all
  std::vector<std::string> undivided;
  const auto divides = [&](const char* key, int64_t value) {
    common = std::gcd(common, value);
    if (value % t != 0) undivided.push_back(fmt::format("{} = {}", key, value));
  };
  divides("num_attention_heads", c.model.num_attention_heads);
  divides("num_key_value_heads", c.model.num_key_value_heads);
  divides("shared_expert_intermediate_size", c.model.shared_expert_intermediate_size);
  if (c.model.first_k_dense_replace > 0) divides("intermediate_size", c.model.intermediate_size);
  if (c.model.head) divides("vocab_size", c.model.vocab_size);
  divides("sequence_length", c.training.sequence_length);
  require_input(undivided.empty(),
                "tensor_parallel = {} does not divide {}; nearest that divide all that it shares and do: {}", t,
                fmt::join(undivided, ", "), fmt::join(nearest_divisors(common, t), " or "));
}

void validate_experts(const Case& c) {
  const int64_t experts = c.model.num_experts, ranks = c.grid.expert_parallel;
  const int64_t stage = int64_t{c.grid.data_parallel} * c.grid.tensor_parallel;
  if (c.model.moe_layers() == 0 || experts % ranks == 0) return;
  const int64_t fewer = experts / ranks * ranks;
  throw InputError(fmt::format(
      "num_experts = {} does not spread evenly over expert_parallel = {} ranks ({} = {} x {} + {}: {} experts would be "
      "left over). Nearest that fit: expert_parallel {} on the {} ranks of a stage; expert_parallel {} on stages "
      "(data_parallel x tensor_parallel) of a multiple of as many ranks; num_experts {} on expert_parallel {}",
      experts, ranks, experts, experts / ranks, ranks, experts % ranks, experts % ranks,
      fmt::join(nearest_divisors(std::gcd(experts, stage), ranks), " or "), stage,
      fmt::join(nearest_divisors(experts, ranks), " or "),
      fewer > 0 ? fmt::format("{} or {}", fewer, fewer + ranks) : fmt::format("{}", ranks), ranks));
}

void validate_training(const TrainingOptions& t) {
  at_least("sequence_length", t.sequence_length, 1);
  at_least("micro_batch_size", t.micro_batch_size, 1);
  at_least("micro_batches", t.micro_batches, 1);
  at_least("iterations", t.iterations, 1);
  at_least("checkpoint_every", t.checkpoint_every, 1);
  within("learning_rate", t.learning_rate, 0, 1e6);
  require_input(t.adam_beta1 >= 0 && t.adam_beta1 < 1, "adam_beta1 = {}: must lie in [0, 1)", t.adam_beta1);
  require_input(t.adam_beta2 >= 0 && t.adam_beta2 < 1, "adam_beta2 = {}: must lie in [0, 1)", t.adam_beta2);
  require_input(t.adam_epsilon > 0 && t.adam_epsilon <= 1, "adam_epsilon = {}: must lie in (0, 1]", t.adam_epsilon);
}

void validate_limits(const Case& c) {
  const int64_t alignment = c.memory.alignment.value;
  at_least("memory.cap", c.memory.cap.value, 1);
  require_input(alignment >= 1 && alignment <= (int64_t{1} << 30) &&
                    std::has_single_bit(static_cast<std::uint64_t>(alignment)),
                "memory.alignment = {} bytes: must be a power of two up to 2^30", alignment);
  within("provisioning.margin", c.provisioning.margin, 1, 1e6);
  within("provisioning.calm_imbalance", c.provisioning.calm_imbalance, 1, 1e6);
  at_least("provisioning.calm_iterations", c.provisioning.calm_iterations, 1);
}

/// The name becomes part of a path and of the line that reports the figure of merit.
void validate_name(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_' ||
           ch == '.';
  });
  require_input(!name.empty() && name.size() <= 100 && plain && name.front() != '.',
                "name = \"{}\": must be 1 to 100 letters, digits, '-', '_' or '.', not starting with '.'", name);
}

}  // namespace

std::vector<int64_t> layers_of_pieces(const Case& c) {
  if (!c.layers_per_stage.empty()) return c.layers_per_stage;
  const int64_t pieces = int64_t{c.grid.pipeline_parallel} * chunks_of_stages(c), layers = c.model.num_hidden_layers;
  std::vector<int64_t> count(static_cast<std::size_t>(pieces), layers / pieces);
  for (int64_t piece = 0; piece < layers % pieces; ++piece) ++count[static_cast<std::size_t>(piece)];
  return count;
}

int chunks_of_stages(const Case& c) {
  const int64_t of_stage = c.model.num_hidden_layers / c.grid.pipeline_parallel, chunk = c.layers_per_virtual_stage;
  return static_cast<int>(chunk == 0 ? c.virtual_stages : std::max<int64_t>(1, of_stage / chunk));
}

Schedule pipeline_schedule(const Case& c) {
  Schedule schedule =
      find_schedule(c.schedule)
          .make({c.grid.pipeline_parallel, static_cast<int>(c.training.micro_batches), chunks_of_stages(c)});
  if (c.schedule == "dual_batch" && c.fuse == Choice::never) schedule = in_turn(std::move(schedule));
  const std::string stuck = find_deadlock(schedule);
  ensure(stuck.empty(), "the pipeline schedule {} would deadlock: {}", c.schedule, stuck);
  return schedule;
}

std::string stages_not_fused(const Case& c) {
  if (!c.schedule.starts_with("dual_batch")) return {};
  const auto stages = stages_without_units(pipeline_schedule(c));
  if (stages.empty()) return {};
  return fmt::format(
      "schedule = {}: no room to fuse on stages {}: their warm-up takes all {} forward passes (micro_batches {} x {} "
      "chunks); they run in plain order",
      c.schedule, fmt::join(stages, ", "), c.training.micro_batches * chunks_of_stages(c), c.training.micro_batches,
      chunks_of_stages(c));
}

RoutingProblem routing_problem(const Case& c) {
  return {.num_experts = c.model.num_experts,
          .num_experts_per_tok = c.model.num_experts_per_tok,
          .num_layers = c.model.num_hidden_layers,
          .sequence_length = c.training.sequence_length,
          .sequences_per_iteration = c.global_batch()};
}

void validate(const Case& c, int world) {
  validate_without_workload(c, world);
  if (c.model.moe_layers() > 0) validate(c.routing, routing_problem(c));
}

void validate_without_workload(const Case& c, int world) {
  validate_name(c.name);
  validate(c.model);
  validate_training(c.training);
  validate_magnitudes(c);
  validate(c.grid, world);
  validate_layers(c);
  validate_schedule(c);
  validate_experts(c);
  validate_tensor_parallel(c);
  validate_limits(c);
  validate_policies(c.provisioning, policy_names());
  require_input(make_policy(c.provisioning.fallback)->obeys_cap(),
                "provisioning.fallback = {}: it ignores memory.cap, so nothing would stop the next spike; choose keep, "
                "selective or full",
                c.provisioning.fallback);
  const auto& policies = c.provisioning.policies;
  const bool replays = std::find(policies.begin(), policies.end(), "replay") != policies.end();
  require_input(
      !replays || !c.provisioning.options.replay_file.empty(),
      "policy replay carries out decisions from a file: set replay.file = \"FILE\", as --decisions writes it");
  require_input(
      c.provisioning.fallback != "replay" && c.provisioning.fallback != "hindsight",
      "provisioning.fallback = {}: decisions for a run without a restart do not fit one after it; choose full",
      c.provisioning.fallback);
  validate(c.machine);
}

void validate_policies(const ProvisioningOptions& provisioning, std::span<const std::string> known) {
  const auto check = [&](const char* key, const std::string& name) {
    require_input(std::find(known.begin(), known.end(), name) != known.end(),
                  "{}: there is no policy \"{}\"; nearest: {}; known: {}", key, name, nearest(name, known),
                  fmt::join(known, ", "));
  };
  const auto& policies = provisioning.policies;
  require_input(!policies.empty(), "provisioning.policies is empty: name at least one of {}", fmt::join(known, ", "));
  for (auto name = policies.begin(); name != policies.end(); ++name) {
    check("provisioning.policies", *name);
    require_input(std::find(policies.begin(), name, *name) == name, "provisioning.policies names \"{}\" twice", *name);
  }
  check("provisioning.fallback", provisioning.fallback);
}

void validate_real_run(const Case& c, const LaunchFacts& facts) {
  validate(c, facts.world);
  require_input(c.model.bytes_per_element == 4,
                "bytes_per_element = {}: a run with real data computes in fp32 on the "
                "host; set model.bytes_per_element = 4",
                c.model.bytes_per_element);
  const bool crowded = facts.cores_on_this_node > 0 && facts.ranks_on_this_node > facts.cores_on_this_node;
  if (c.clock == ClockKind::wall && crowded && !c.allow_oversubscribed) {
    throw EnvironmentError(
        fmt::format("clock = wall, but {} ranks share the {} cores of a node, so their times would say little: start "
                    "at most {} ranks "
                    "per node, set clock = virtual, or pass --allow-oversubscribed",
                    facts.ranks_on_this_node, facts.cores_on_this_node, facts.cores_on_this_node));
  }
}

}  // namespace spillway
