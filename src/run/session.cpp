#include "run/session.hpp"

#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"

namespace spillway {
namespace {

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

/// Tasks that the launcher of this very process started; 0 where no launcher says so. mpirun's own variables come first:
/// inside a batch job it may rightly start fewer ranks than the job has tasks.
int launcher_tasks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const int tasks = environment_number(name); tasks > 0) return tasks;
  return 0;
}

}  // namespace

Session::Session() {
  const int tasks = launcher_tasks();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &facts_.world);
  if (tasks > 0 && tasks != facts_.world) {
    const int world = facts_.world;
    MPI_Finalize();
    throw EnvironmentError(fmt::format(
        "the launcher started {} tasks, but MPI sees a world of {}: the tasks do not find each other. Launch with a process "
        "manager that this MPI knows (srun --mpi=pmix, or mpirun)", tasks, world));
  }
  find_nodes();
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    omp_set_num_threads(std::max(1, facts_.cores_on_this_node / facts_.ranks_on_this_node));
  threads_ = omp_get_max_threads();
  setenv("OMP_PROC_BIND", "false", 0);
  // Shared cores are the report's business, said once.
  char name[] = "spillway", quiet[] = "--kokkos-disable-warnings";
  char* kokkos_arguments[] = {name, quiet, nullptr};
  int count = 2;
  Kokkos::initialize(count, kokkos_arguments);
}

Session::~Session() {
  Kokkos::finalize();
  MPI_Finalize();
}

void Session::find_nodes() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &facts_.ranks_on_this_node);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, node);
  facts_.cores_on_this_node = CPU_COUNT(&cores);

  int first = rank_;
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, node);
  MPI_Comm_free(&node);
  std::vector<int> firsts(facts_.world);
  MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> distinct = firsts;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (const int f : firsts)
    node_of_rank_.push_back(static_cast<int>(std::lower_bound(distinct.begin(), distinct.end(), f) - distinct.begin()));

  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(name, &length);
  host_.assign(name, static_cast<std::size_t>(length));
}

std::string Session::broadcast(const std::string& text) const {
  long long length = static_cast<long long>(text.size());
  MPI_Bcast(&length, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
  std::string received = text;
  received.resize(static_cast<std::size_t>(length));
  MPI_Bcast(received.data(), static_cast<int>(length), MPI_CHAR, 0, MPI_COMM_WORLD);
  return received;
}

}  // namespace spillway
