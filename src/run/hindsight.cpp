#include "run/hindsight.hpp"

#include <mpi.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "run/decision_record.hpp"
#include "run/policy_run.hpp"

namespace spillway {
namespace {

constexpr std::array<const char*, 2> flexible_choices = {"flexible:ratio", "flexible:greedy"};

using OfRanks = std::vector<const DecisionTable*>;

void add_decisions(const Projection& projection, std::int64_t iteration, JobDecisions& to) {
  for (std::size_t r = 0; r < to.size(); ++r)
    for (const DecisionRecord& d : record_decisions(projection.plan(static_cast<int>(r)), iteration))
      to[r].set({iteration, d.micro_batch, d.block}, d.decision);
}

OfRanks pointers(const JobDecisions& decisions) {
  OfRanks list;
  for (const DecisionTable& t : decisions) list.push_back(&t);
  return list;
}

/// The projected iteration under given decisions; empty where it runs out of memory.
std::optional<Seconds> project(const ProjectionSetting& s, std::int64_t iteration, const OfRanks& of_rank) {
  Projection projection({s.run_case, s.routing, s.schedule, s.time, "hindsight"}, [&](int rank) {
    PolicyOptions options = s.run_case.provisioning.options;
    options.decisions = {std::shared_ptr<void>(), of_rank[static_cast<std::size_t>(rank)]};  // not owned
    return make_policy("hindsight", options);
  });
  const IterationRecord record = projection.run(iteration).record;
  if (!record.completed()) return std::nullopt;
  return record.seconds;
}

/// Exchanges vectors of numbers: every rank receives what `from` holds.
void broadcast(std::vector<std::int64_t>& numbers, int from) {
  auto size = static_cast<long long>(numbers.size());
  MPI_Bcast(&size, 1, MPI_LONG_LONG, from, MPI_COMM_WORLD);
  numbers.resize(static_cast<std::size_t>(size));
  MPI_Bcast(numbers.data(), static_cast<int>(size), MPI_INT64_T, from, MPI_COMM_WORLD);
}

/// What flexible decides in both choices; two ranks find out, all know.
std::vector<JobDecisions> share_flexible(const ProjectionSetting& s, int rank, int world) {
  std::vector<JobDecisions> all;
  int owner = 0;
  std::vector<JobDecisions> mine(2);
  for (const char* policy : flexible_choices) {
    if (rank == owner % world) mine[static_cast<std::size_t>(owner)] = project_decisions(s, policy);
    ++owner;
  }
  for (owner = 0; owner < 2; ++owner) {
    JobDecisions shared(static_cast<std::size_t>(Grid(s.run_case.grid).ranks()));
    for (std::size_t r = 0; r < shared.size(); ++r) {
      std::vector<std::int64_t> numbers;
      if (rank == owner % world) mine[static_cast<std::size_t>(owner)][r].append_to(numbers);
      broadcast(numbers, owner % world);
      shared[r].add_from(numbers);
    }
    all.push_back(std::move(shared));
  }
  return all;
}

}  // namespace

JobDecisions project_decisions(const ProjectionSetting& s, const std::string& policy) {
  JobDecisions decisions(static_cast<std::size_t>(Grid(s.run_case.grid).ranks()));
  Projection projection({s.run_case, s.routing, s.schedule, s.time, policy});
  for (std::int64_t i = 0; i < s.run_case.training.iterations; ++i) {
    if (!projection.run(i).record.completed()) break;
    add_decisions(projection, i, decisions);
  }
  return decisions;
}

Hindsight search_hindsight(const ProjectionSetting& s, std::int64_t iteration, const std::vector<JobDecisions>& given) {
  const Grid grid(s.run_case.grid);
  Hindsight result;
  std::vector<std::pair<Seconds, OfRanks>> candidates;
  for (const JobDecisions& decisions : given) {
    const OfRanks of_ranks = pointers(decisions);
    ++result.tried;
    if (const auto seconds = project(s, iteration, of_ranks)) candidates.emplace_back(*seconds, of_ranks);
  }
  std::vector<JobDecisions> simple;
  simple.reserve(3);
  for (const char* policy : {"keep", "selective", "full"}) {
    Projection projection({s.run_case, s.routing, s.schedule, s.time, policy});
    const IterationRecord record = projection.run(iteration).record;
    ++result.tried;
    if (!record.completed()) continue;
    simple.emplace_back(static_cast<std::size_t>(grid.ranks()));
    add_decisions(projection, iteration, simple.back());
    candidates.emplace_back(record.seconds, pointers(simple.back()));
  }
  if (candidates.empty()) return result;
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [](const auto& a, const auto& b) { return a.first < b.first; });
  result.seconds = result.first = best->first;
  OfRanks chosen = best->second;

  // coordinate descent: expert and tensor-parallel groups share their collectives, so the ranks that they link, which
  // follow each other, change as a whole
  const int linked = std::lcm(grid.expert(), grid.tensor());
  for (int stage = 0; stage < grid.pipeline(); ++stage)
    for (int first = stage * grid.plane(); first < (stage + 1) * grid.plane(); first += linked)
      for (const auto& [alone, other] : candidates) {
        OfRanks trial = chosen;
        std::copy_n(other.begin() + first, linked, trial.begin() + first);
        if (trial == chosen) continue;
        ++result.tried;
        const auto seconds = project(s, iteration, trial);
        if (!seconds || *seconds >= result.seconds) continue;
        result.seconds = *seconds;
        chosen = trial;
      }
  for (const DecisionTable* t : chosen) result.decisions.push_back(t->of_iteration(iteration));
  return result;
}

JobDecisions find_hindsight(const ProjectionSetting& s) {
  std::vector<JobDecisions> flexible;
  flexible.reserve(flexible_choices.size());
  for (const char* policy : flexible_choices) flexible.push_back(project_decisions(s, policy));
  JobDecisions all(static_cast<std::size_t>(Grid(s.run_case.grid).ranks()));
  for (std::int64_t i = 0; i < s.run_case.training.iterations; ++i) {
    const Hindsight found = search_hindsight(s, i, flexible);
    for (std::size_t r = 0; r < found.decisions.size(); ++r) all[r].add(found.decisions[r]);
  }
  return all;
}

DecisionTable share_hindsight(const ProjectionSetting& s) {
  int world = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::vector<JobDecisions> flexible = share_flexible(s, rank, world);
  DecisionTable mine;
  const std::int64_t iterations = s.run_case.training.iterations;
  for (std::int64_t first = 0; first < iterations; first += world) {
    Hindsight found;
    if (first + rank < iterations) found = search_hindsight(s, first + rank, flexible);
    for (int owner = 0; owner < world && first + owner < iterations; ++owner) {
      std::vector<std::int64_t> numbers;
      std::vector<std::int64_t> all;
      if (rank == owner)
        for (const DecisionTable& t : found.decisions) {
          numbers.clear();
          t.append_to(numbers);
          all.push_back(static_cast<std::int64_t>(numbers.size()));
          all.insert(all.end(), numbers.begin(), numbers.end());
        }
      broadcast(all, owner);
      std::span<const std::int64_t> rest(all);
      for (int r = 0; !rest.empty(); ++r) {
        const auto size = static_cast<std::size_t>(rest[0]);
        if (r == rank) mine.add_from(rest.subspan(1, size));
        rest = rest.subspan(1 + size);
      }
    }
  }
  return mine;
}

}  // namespace spillway
