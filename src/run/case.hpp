#pragma once
// A case: everything a run depends on, already checked. app/ fills it from files and the command line.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/choice.hpp"
#include "base/units.hpp"
#include "grid/grid.hpp"
#include "plan/cost/machine_profile.hpp"
#include "plan/policy/options.hpp"
#include "plan/schedule/schedule.hpp"
#include "workload/routing/routing_source.hpp"
#include "workload/shape/model_shape.hpp"

namespace spillway {

enum class ClockKind : unsigned char { wall, virtual_time };

struct TrainingOptions {
  std::int64_t sequence_length = 64;  ///< tokens of a sequence
  std::int64_t micro_batch_size = 1;  ///< sequences of a micro-batch on one data-parallel rank
  std::int64_t micro_batches = 8;     ///< per iteration and data-parallel rank
  std::int64_t iterations = 10;
  std::uint64_t seed = 1;  ///< of weights and tokens
  double learning_rate = 1e-3;
  double adam_beta1 = 0.9, adam_beta2 = 0.95, adam_epsilon = 1e-8;
  std::int64_t checkpoint_every = 1;  ///< iterations between snapshots a restart returns to
  Seconds watchdog_seconds{600};      ///< a rank that makes no progress for so long ends the job; 0: never
  bool operator==(const TrainingOptions&) const = default;
};

struct MemoryOptions {
  Bytes cap{std::int64_t{1} << 40};       ///< hard limit of the sum of live blocks on every rank
  Bytes host_cap{std::int64_t{1} << 40};  ///< the same of offloaded blocks in the host tier
  Bytes alignment{256};                   ///< every live block is rounded up to a multiple of it; a power of two
  bool operator==(const MemoryOptions&) const = default;
};

struct ProvisioningOptions {
  std::vector<std::string> policies{"oracle", "keep"};
  double margin = 1.15;                   ///< load, as a multiple of balance, that static policies plan for
  std::string fallback = "full";          ///< policy after an out-of-memory event
  double calm_imbalance = 1.2;            ///< at or below it a spike is over
  std::int64_t calm_iterations = 2;       ///< consecutive calm iterations before restarting back
  std::int64_t predicted_iterations = 8;  ///< iterations whose seconds the cost model predicts; 0: none
  std::vector<double> margins;            ///< x balance: static planners are also projected at each of these
  PolicyOptions options;
  bool operator==(const ProvisioningOptions&) const = default;
};

struct Case {
  std::string name = "unnamed";
  ClockKind clock = ClockKind::virtual_time;
  bool allow_oversubscribed = false;  ///< lets more ranks than cores run on the wall clock
  std::string model_name;
  ModelShape model;
  GridOptions grid;
  /// Layers of every piece of the model in its order: with one chunk a piece is a stage. Empty: as even as possible.
  std::vector<std::int64_t> layers_per_stage;
  /// Model chunks of every stage. Chunk c of stage r is piece c x pipeline_parallel + r of the model.
  std::int64_t virtual_stages = 1;
  /// The same by layers (Megatron-LM: num_layers_per_virtual_pipeline_stage): consecutive layers of one chunk, which must
  /// divide the layers of a stage. 0: virtual_stages decides.
  std::int64_t layers_per_virtual_stage = 0;
  std::string schedule = "1f1b";  ///< order of work on the pipeline's stages, by name (plan/schedule/schedule_table)
  /// Are the halves of a dual_batch schedule's units issued side by side? automatic: where every member of the expert group
  /// has room for both at the load expected. never: in turn, backward first.
  Choice fuse = Choice::automatic;
  /// Does a thread of every rank drive its messages on (wall clock)? automatic: where ranks have a core to spare.
  Choice network_thread = Choice::automatic;
  bool check_order = false;  ///< compare, before every message, what the ranks of its group are about to issue
  /// Reduce the gradients of a block once its last backward pass is done, beside the rest of cool-down, instead of all of
  /// them after it.
  bool overlap_gradients = false;
  TrainingOptions training;
  RoutingOptions routing;
  MemoryOptions memory;
  ProvisioningOptions provisioning;
  MachineProfile machine;

  /// Sequences of one iteration over the whole job.
  std::int64_t global_batch() const { return grid.data_parallel * training.micro_batches * training.micro_batch_size; }
  /// Tokens of one iteration over the whole job.
  std::int64_t tokens_per_iteration() const { return global_batch() * training.sequence_length; }
  bool operator==(const Case&) const = default;
};

/// Layers of every piece of the model [chunks x pipeline_parallel]: the stated list, or num_hidden_layers / pieces with one
/// more on each of the first (num_hidden_layers mod pieces): 7 layers on 2 stages are 4 + 3.
std::vector<std::int64_t> layers_of_pieces(const Case& c);

/// Model chunks of every stage: virtual_stages, or the layers of a stage / layers_per_virtual_stage.
int chunks_of_stages(const Case& c);

/// The order of work of every stage; proved to get to its end. Throws InternalError otherwise.
Schedule pipeline_schedule(const Case& c);

/// Where a case asks for fused units and its micro-batches leave no room for them on some stages: which, with the
/// arithmetic. Empty otherwise.
std::string stages_not_fused(const Case& c);

/// The part of the case that routing depends on.
RoutingProblem routing_problem(const Case& c);

/// Checks every part and how they fit together, before anything is started: shapes, layers over stages, experts over
/// expert ranks, routing, known policies, sizes that would overflow. `world` is the launcher's rank count, or 0 where
/// there is none. Whether the cap holds the static memory is checked by who computes it. Throws InputError.
void validate(const Case& c, int world);

/// The same without the workload: what parameters, FLOPs and memory depend on. Throws InputError.
void validate_without_workload(const Case& c, int world);

/// Refuses an empty list, a policy named twice, and names that are not among `known`. Throws InputError.
void validate_policies(const ProvisioningOptions& provisioning, std::span<const std::string> known);

/// What the launcher gave this job, on its most crowded node.
struct LaunchFacts {
  int world = 0;  ///< ranks of the job; 0: no launcher to compare with
  int ranks_on_this_node = 1;
  int cores_on_this_node = 0;  ///< hardware threads this job may use; 0: not known
};

/// What a run with real data asks beyond validate(): fp32 elements, and on the wall clock a core for
/// every rank unless the case allows sharing. Throws InputError, or EnvironmentError for the
/// launch.
void validate_real_run(const Case& c, const LaunchFacts& facts);

}  // namespace spillway
