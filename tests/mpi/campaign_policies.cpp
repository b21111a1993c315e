#include "campaign_policies.hpp"

#include "plan/policy/conflicts.hpp"
#include "plan/policy/group_choice.hpp"
#include "plan/policy/together.hpp"
#include "run/decision_record.hpp"

namespace spillway::test {
namespace {

constexpr Bytes no_cap{std::int64_t{1} << 60};

Decider decider(const Case& c, int rank) {
  const Grid grid(c.grid);
  const Coordinates at = grid.coordinates(rank);
  return {rank, at.pipeline * grid.expert_replicas() + at.expert_replica, at.pipeline * grid.data() + at.data};
}

/// Texts of all ranks one after the other, on rank 0.
std::string collect(const std::string& mine) {
  const int size = static_cast<int>(mine.size());
  std::vector<int> sizes(static_cast<std::size_t>(session().world())), first(sizes.size());
  MPI_Gather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
  for (std::size_t r = 1; r < sizes.size(); ++r) first[r] = first[r - 1] + sizes[r - 1];
  std::string all(session().rank() == 0 ? static_cast<std::size_t>(first.back() + sizes.back()) : 0, ' ');
  MPI_Gatherv(mine.data(), size, MPI_CHAR, all.data(), sizes.data(), first.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
  return all;
}

}  // namespace

Mitigations RandomPolicy::decide(const Situation& s) {
  if (s.block.kind != BlockKind::moe && s.block.kind != BlockKind::dense) return Mitigations::keep_all();
  Mitigations m = local(s);
  Draw together(options_.seed, 3, who_.tensor_group, s.iteration, s.block.layer, s.micro_batch);
  draw_for_all(together, tensor_parallel_tensors(s.block), m);
  if (s.block.kind != BlockKind::moe) return m;
  Draw group(options_.seed, 2, who_.group, s.iteration, s.block.layer, s.micro_batch);
  draw_for_all(group, collective_tensors(s.block.context), m);
  if (s.table != nullptr && group.chance(options_.slices)) {
    std::int64_t most = 1;
    for (std::int64_t member = 0; member < s.table->members; ++member) most = std::max(most, tiles(*s.table, member));
    m.tiles_per_slice = 1 + group.below(most);
  }
  return m;
}

void RandomPolicy::draw_for_all(Draw& group, const TensorSet& shared, Mitigations& m) const {
  for (std::size_t i = 0; i < tensor_count; ++i) {
    const auto t = static_cast<Tensor>(i);
    if (!shared.contains(t)) continue;
    const bool again = group.chance(0.5) || !options_.keeps;
    if (again != (m.of(t) == Treatment::recompute)) m.set(t, again ? Treatment::recompute : Treatment::keep);
  }
}

Mitigations RandomPolicy::local(const Situation& s) const {
  Draw draw(options_.seed, 1, who_.rank, s.iteration, s.block.layer, s.micro_batch, s.table != nullptr);
  const double given_up = options_.keeps ? draw.uniform() : 1, offloaded = options_.keeps ? draw.uniform() : 0;
  Mitigations m = Mitigations::keep_all();
  for (const Tensor t : Assignment(s.block.kind, s.block.context).tensors())
    if (draw.chance(given_up)) m.set(t, draw.chance(offloaded) ? Treatment::offload : Treatment::recompute);
  return m;
}

PolicyOf random_policies(RandomPolicy::Options options) {
  return [options](Decider who) { return std::make_unique<RandomPolicy>(options, who); };
}

PlainRun run_policy(const Trial& trial, const PolicyOf& policy_of, Watchdog* watchdog) {
  const Case& c = trial.run_case();
  const RunContext& context = trial.context();
  const int rank = session().rank();
  const auto policy = policy_of(decider(c, rank));
  StepPlan::Setup setup = step_setup(c, context.schedule, Grid(c.grid).coordinates(rank).pipeline, 1);
  if (!policy->obeys_cap()) setup.limits.cap = no_cap;
  device::ArenaOptions memory;
  memory.cap = setup.limits.cap;
  memory.alignment = c.memory.alignment;
  memory.poison_freed = true;
  device::Clock clock(context.time_model);
  StepPlan plan(std::move(setup), *policy);
  Engine engine(c, plan.blocks(), memory, clock);
  Executor executor({c, trial.routing(), context.node_of_rank, watchdog}, engine, plan, clock);

  PlainRun run;
  std::string lines;
  for (std::int64_t i = 0; i < c.training.iterations; ++i) {
    const IterationOutcome outcome = executor.run(i, i + 1);
    run.faults.insert(run.faults.end(), outcome.faults.begin(), outcome.faults.end());
    if (outcome.record.oom) run.faults.push_back(fmt::format("iteration {} ran out of memory", i));
    if (!run.faults.empty()) break;
    run.checksums[i] = outcome.record.gradient_checksum.value();
    run.seconds.push_back(outcome.record.seconds);
    for (DecisionRecord d : record_decisions(plan, i)) {
      d.rank = rank;
      run.slices += d.decision.after.tiles_per_slice > 0;
      lines += to_json(d, plan, "random").dump() + '\n';
    }
  }
  const RankPeaks mine{engine.arena.ledger().peak().value, engine.arena.ledger().activation_peak().value,
                       executor.books().ledger().activation_peak().value};
  run.peaks.resize(static_cast<std::size_t>(session().world()));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, run.peaks.data(), sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  run.decisions = collect(lines);
  return run;
}

PlainProjection project(const Trial& trial, const PolicyOf& policy_of) {
  const Case& c = trial.run_case();
  const MachineTime time(c.machine);
  Projection projection({c, trial.routing(), trial.context().schedule, time, "random"},
                        [&](int rank) { return policy_of(decider(c, rank)); });
  PlainProjection result;
  for (std::int64_t i = 0; i < c.training.iterations; ++i) result.seconds.push_back(projection.run(i).record.seconds);
  for (int r = 0; r < Grid(c.grid).ranks(); ++r)
    result.activation_peaks.push_back(projection.ledger(r).activation_peak());
  return result;
}

}  // namespace spillway::test
