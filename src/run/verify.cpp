#include "run/verify.hpp"

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "device/fault.hpp"
#include "run/gradient_step.hpp"
#include "run/policy_run.hpp"
#include "run/reference_model.hpp"
#include "workload/routing/bursts.hpp"
#include "workload/routing/tokens.hpp"

namespace spillway {
namespace {

constexpr std::int64_t iterations = 2;
constexpr double load_that_fits = 1.3, spike = 1.8;
constexpr double quantized_tolerance = 0.1;  ///< of the gradients' length, where tensors are stored as FP8
constexpr double gradient_tolerance = 2e-4, loss_tolerance = 1e-5;  // relative; fp32 against double

/// The case's model in miniature: everything it has (dense layers, shared expert, grouped heads, head, inventory), small.
ModelShape tiny_shape(const ModelShape& full, const GridOptions& grid, int chunks) {
  ModelShape tiny = full;
  tiny.hidden_size = 16;
  tiny.moe_intermediate_size = 8;
  const std::int64_t t = grid.tensor_parallel;
  const auto shared = [t](std::int64_t size) { return (size + t - 1) / t * t; };  // by the tensor-parallel group
  tiny.intermediate_size = full.first_k_dense_replace > 0 ? shared(12) : 0;
  tiny.shared_expert_intermediate_size = full.shared_expert_intermediate_size > 0 ? shared(8) : 0;
  tiny.num_hidden_layers = std::max(2, grid.pipeline_parallel * chunks);
  tiny.first_k_dense_replace = std::min<std::int64_t>(full.first_k_dense_replace, 1);
  tiny.num_experts_per_tok = std::min<std::int64_t>(2, full.num_experts_per_tok);
  tiny.num_experts = std::max<std::int64_t>(2 * grid.expert_parallel, 4);
  const bool grouped = full.num_key_value_heads < full.num_attention_heads;
  tiny.num_key_value_heads = shared(grouped ? 2 : 4);
  tiny.num_attention_heads = (grouped ? 2 : 1) * tiny.num_key_value_heads;
  tiny.head_dim = 4;
  tiny.vocab_size = shared(32);
  return tiny;
}

/// A tiny workload on the case's own grid, with a spike in its second iteration where loads can differ at all.
Case tiny_case(const Case& full) {
  Case tiny = full;
  tiny.name = "verification";
  tiny.virtual_stages = chunks_of_stages(full);
  tiny.layers_per_virtual_stage = 0;
  tiny.layers_per_stage.clear();
  tiny.model = tiny_shape(full.model, full.grid, chunks_of_stages(full));
  const std::int64_t t = full.grid.tensor_parallel;
  tiny.training = {.sequence_length = (32 + t - 1) / t * t,
                   .micro_batch_size = 1,
                   .micro_batches = std::min<std::int64_t>(full.training.micro_batches, 4),
                   .iterations = iterations,
                   .seed = full.training.seed,
                   .learning_rate = 1e-2,
                   .adam_epsilon = 1e-3};
  tiny.memory.alignment = std::min(tiny.memory.alignment, Bytes(4096));
  tiny.routing = {};
  const auto ranks = static_cast<double>(full.grid.expert_parallel);
  const auto k = static_cast<double>(tiny.model.num_experts_per_tok);
  const double bound = ranks * std::min(k, static_cast<double>(tiny.model.num_experts) / ranks) / k;
  if (bound <= 1.05) {
    tiny.routing.preset = "balanced";
    tiny.routing.reference_ranks = 1;
    return tiny;
  }
  tiny.routing.preset = "burst";
  tiny.routing.reference_ranks = full.grid.expert_parallel;
  tiny.routing.calm = 1.05;
  tiny.routing.peak = std::min(spike, bound);
  tiny.routing.burst_length = 1;
  tiny.routing.burst_fraction = 0.5;
  tiny.routing.hot_share = 0.5;
  const auto calm_then_hot = [&tiny] {
    const BurstSchedule bursts(tiny.routing.seed, tiny.routing.burst_length, tiny.routing.burst_fraction);
    return !bursts.burst(0) && bursts.burst(1);
  };
  while (!calm_then_hot()) ++tiny.routing.seed;
  return tiny;
}

/// Largest stage's need under a policy at the load that shall just fit.
Bytes need(const Case& tiny, const Schedule& schedule, std::string_view name) {
  const auto policy = make_policy(name, tiny.provisioning.options);
  Bytes peak;
  for (int stage = 0; stage < Grid(tiny.grid).pipeline(); ++stage) {
    StepPlan plan(step_setup(tiny, schedule, stage, load_that_fits), *policy);
    const RowsOf rows = [](int, const StageBlock& b) { return balanced_rows(b.context, load_that_fits); };
    if (policy->adapts()) {
      peak = std::max(peak, least_cap(tiny, plan));
      continue;
    }
    const Bytes in_order = forecast_memory(plan, rows).ledger().peak();
    peak = std::max({peak, in_order, plan.memory().forecast()});
  }
  return peak;
}

/// Caps that make a policy show what it has. One that adapts: the least it can do with, where it slices and recomputes
/// all, and half-way between full recompute and keeping everything, where it chooses. A static one: what it needs at the
/// load that shall just fit, so that the spike breaks it; a planner, whose need depends on the cap, starts from half-way.
std::vector<Bytes> tight_caps(Case tiny, const Schedule& schedule, std::string_view name) {
  const Bytes keep = need(tiny, schedule, "keep"), full = need(tiny, schedule, "full");
  const Bytes half = round_up(Bytes((keep.value + full.value) / 2), tiny.memory.alignment);
  tiny.memory.cap = half;
  const Bytes needed = need(tiny, schedule, name);
  if (make_policy(name)->adapts()) return {needed, std::max(needed, half)};
  for (Bytes cap = needed;;) {  // ends: caps grow, and each is what one of finitely many plans needs
    tiny.memory.cap = cap;
    const Bytes under_it = need(tiny, schedule, name);
    if (under_it <= cap) return {cap};
    cap = under_it;
  }
}

/// What the serial reference found: losses of both iterations and the gradients of the second, in a fixed order.
struct Reference {
  std::vector<double> losses;
  std::map<std::pair<int, Parameter>, std::vector<double>> gradients;  // by (layer, parameter), whole layer
};

/// Parameters of every layer with all experts on one rank; layer -1 holds embedding and head.
std::vector<std::pair<int, ParameterShape>> whole_model(const Case& tiny) {
  StageSetup setup = stage_setup(tiny);
  setup.grid = {};
  setup.layers_of_pieces = {tiny.model.num_hidden_layers};
  std::vector<std::pair<int, ParameterShape>> list;
  for (const StageBlock& block : stage_blocks(setup, 0))
    for (const ParameterShape& p : parameters(block.kind, block.context)) list.emplace_back(block.layer, p);
  return list;
}

ReferenceBatch batch_of(const Case& tiny, const RoutingSource& routing, std::int64_t iteration,
                        std::vector<std::int32_t>& choices) {
  const std::int64_t s = tiny.training.sequence_length;
  ReferenceBatch batch{iteration, tiny.global_batch(), s, {}, {}, {}};
  const TokenSource source{tiny.training.seed, tiny.model.vocab_size};
  batch.tokens.resize(batch.total_tokens());
  for (std::int64_t g = 0; g < batch.sequences; ++g)
    source.tokens(iteration, g, std::span(batch.tokens).subspan(g * s, s));
  for (const std::int32_t id : batch.tokens) batch.labels.push_back(source.label(id));
  choices.resize(s * tiny.model.num_experts_per_tok);
  batch.choices = [&routing, &choices, iteration](int layer, std::int64_t sequence) -> std::span<const std::int32_t> {
    routing.choices({iteration, layer, sequence}, choices);
    return choices;
  };
  return batch;
}

/// Rank 0 computes, the others receive.
Reference reference(const Case& tiny, const RoutingSource& routing) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<double> flat;
  const auto model_parameters = whole_model(tiny);
  if (rank == 0) {
    ReferenceModel model(tiny.model, tiny.training.seed);
    std::vector<std::int32_t> choices;
    for (std::int64_t i = 0; i < iterations; ++i) {
      flat.push_back(model.step_gradients(batch_of(tiny, routing, i, choices)));
      if (i + 1 < iterations)
        model.adam({tiny.training.learning_rate, tiny.training.adam_beta1, tiny.training.adam_beta2,
                    tiny.training.adam_epsilon, i + 1});
    }
    for (const auto& [layer, p] : model_parameters) {
      const auto gradient = model.gradient(p.id, layer);
      flat.insert(flat.end(), gradient.begin(), gradient.end());
    }
  }
  auto size = static_cast<long long>(flat.size());
  MPI_Bcast(&size, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
  flat.resize(static_cast<std::size_t>(size));
  MPI_Bcast(flat.data(), static_cast<int>(size), MPI_DOUBLE, 0, MPI_COMM_WORLD);

  Reference result;
  auto at = flat.begin();
  result.losses.assign(at, at + iterations);
  at += iterations;
  for (const auto& [layer, p] : model_parameters) {
    result.gradients[{layer, p.id}].assign(at, at + p.size());
    at += p.size();
  }
  return result;
}

/// This rank's gradient shards against the reference; the worst relative difference per parameter beyond tolerance.
std::string compare_gradients(PolicyRunner& run, const Reference& reference) {
  Engine& engine = run.engine();
  for (const auto& [key, place] : engine.parameters.places()) {
    const auto [block, id] = key;
    const GroupBuffers& group = engine.parameters.group(place.shape.group);
    const auto [first, shard] = my_shard(engine, place.shape.group, group.elements.bucket_of(block));
    const std::vector<double>& expected = reference.gradients.at({run.blocks()[block].layer, id});
    double scale = 0, worst = 0;
    for (const double g : expected) scale = std::max(scale, std::abs(g));
    for (std::int64_t i = std::max(place.offset, first); i < std::min(place.offset + place.shape.size(), first + shard);
         ++i) {
      const std::int64_t at =
          ParameterStore::whole_index(place.shape, engine.grid, engine.communicators.here, i - place.offset);
      const double difference = std::abs(group.gradients[i] - expected[at]);
      worst = std::isfinite(difference) ? std::max(worst, difference) : INFINITY;
    }
    if (worst > gradient_tolerance * scale + 1e-9)
      return fmt::format("gradient of {} (layer {}) is off by {:.2e}, its largest element is {:.2e}", name(id),
                         run.blocks()[block].layer, worst, scale);
  }
  return {};
}

std::vector<float> my_gradients(PolicyRunner& run) {
  Engine& engine = run.engine();
  std::vector<float> all;
  for (const ParameterGroup which : {ParameterGroup::dense, ParameterGroup::expert, ParameterGroup::plane}) {
    const GroupBuffers& group = engine.parameters.group(which);
    for (const Bucket& bucket : group.elements.buckets) {
      const auto [first, shard] = my_shard(engine, which, bucket);
      all.insert(all.end(), group.gradients + first, group.gradients + first + shard);
    }
  }
  return all;
}

/// Of policies that quantize: the distance of the gradients relative to their length. FP8 rounds activations to 1/16 at
/// worst; their errors average out over the rows of a product.
std::string compare_roughly(PolicyRunner& run, const std::string& name, const std::vector<float>& gradients) {
  const std::vector<float> mine = my_gradients(run);
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    distance += (mine[i] - gradients[i]) * (mine[i] - gradients[i]);
    length += gradients[i] * gradients[i];
  }
  if (std::sqrt(distance) <= quantized_tolerance * std::sqrt(length)) return {};
  return fmt::format("gradients of {} with quantized tensors are off by {:.3f} of their length; {} is allowed", name,
                     std::sqrt(distance / length), quantized_tolerance);
}

/// The first rank that has something to say decides what all say.
void share(std::vector<std::string>& reasons, const std::string& mine, const Session& session) {
  int first = mine.empty() ? session.world() : session.rank();
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first == session.world()) return;
  int length = static_cast<int>(mine.size());
  MPI_Bcast(&length, 1, MPI_INT, first, MPI_COMM_WORLD);
  std::string text = mine;
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, first, MPI_COMM_WORLD);
  reasons.push_back(fmt::format("verification, rank {}: {}", first, text));
}

/// Loss and checksum of every iteration's last attempt.
const IterationRecord* last_attempt(const PolicyRun& run, std::int64_t index) {
  const auto found = std::find_if(run.iterations.rbegin(), run.iterations.rend(),
                                  [index](const IterationRecord& r) { return r.index == index && r.completed(); });
  return found == run.iterations.rend() ? nullptr : &*found;
}

std::string compare_losses(const PolicyRun& run, const std::vector<double>& expected) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    const IterationRecord* record = last_attempt(run, i);
    if (record == nullptr) return fmt::format("{}: iteration {} did not complete", run.policy, i);
    if (std::abs(*record->loss - expected[i]) > loss_tolerance * std::abs(expected[i]))
      return fmt::format("{}: loss of iteration {} is {:.8f}, the serial reference's {:.8f}", run.policy, i,
                         *record->loss, expected[i]);
  }
  return {};
}

/// Runs a policy; empty, or how its gradients differ from those of the plain run.
std::string compare_with_plain(const RunContext& context, const std::string& name, const PolicyRun& plain,
                               const std::vector<float>& gradients) {
  PolicyRunner runner(context, name);
  const PolicyRun run = runner.run();
  if (run.infeasible) return fmt::format("{} was refused: {}", name, *run.infeasible);
  const bool exact = make_policy(name, context.run_case.provisioning.options)->exact();
  if (!exact) return run.reasons.empty() ? compare_roughly(runner, name, gradients) : run.reasons.front();
  if (my_gradients(runner) != gradients) return fmt::format("gradients of {} differ from the plain run's", name);
  for (std::int64_t i = 0; i < iterations; ++i) {
    const IterationRecord *mine = last_attempt(run, i), *theirs = last_attempt(plain, i);
    if (mine == nullptr || theirs == nullptr) return fmt::format("{}: iteration {} did not complete", name, i);
    if (mine->gradient_checksum != theirs->gradient_checksum)
      return fmt::format("gradient checksum of {} in iteration {} differs from the plain run's", name, i);
  }
  return run.reasons.empty() ? std::string() : run.reasons.front();
}

}  // namespace

std::vector<std::string> verify(const Case& c, const Session& session, Watchdog& watchdog) {
  device::reach(device::Phase::verification);
  Case tiny = tiny_case(c);
  const auto routing = make_routing_source(tiny.routing, routing_problem(tiny));
  const MachineTime machine_time(tiny.machine);
  const device::TimeModel* time = c.clock == ClockKind::virtual_time ? &machine_time : nullptr;
  std::vector<std::string> reasons;

  // 1. plain, without a cap, against the serial reference
  RunContext context = make_context(tiny, session, *routing, time);
  context.rehearsal = true;
  context.watchdog = &watchdog;
  PolicyRunner plain(context, "oracle");
  const PolicyRun plain_run = plain.run();
  const Reference expected = reference(tiny, *routing);
  share(reasons, compare_losses(plain_run, expected.losses), session);
  share(reasons, compare_gradients(plain, expected), session);
  for (const std::string& fault : plain_run.reasons) share(reasons, fault, session);
  const std::vector<float> gradients = my_gradients(plain);

  // 2. every policy under a cap that the spike breaks, bit for bit
  std::vector<std::string> policies = c.provisioning.policies;
  if (std::find(policies.begin(), policies.end(), c.provisioning.fallback) == policies.end())
    policies.push_back(c.provisioning.fallback);
  const bool slices = std::any_of(policies.begin(), policies.end(), [&](const std::string& name) {
    return make_policy(name, c.provisioning.options)->adapts();
  });
  if (slices) policies.emplace_back("full:slices");  // what they all may fall back to
  tiny.provisioning.fallback = "oracle";
  tiny.provisioning.margin = load_that_fits;
  for (const std::string& name : policies)
    for (const Bytes cap : tight_caps(tiny, context.schedule, name)) {
      tiny.memory.cap = cap;
      share(reasons, compare_with_plain(context, name, plain_run, gradients), session);
    }
  return reasons;
}

}  // namespace spillway
