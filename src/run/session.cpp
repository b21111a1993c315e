#include "run/session.hpp"

#include <mpi.h>
#include <omp.h>
#include <sched.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"

namespace spillway {
namespace {

int environment_number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}

/// Refuses a launcher that started several tasks of which each would see itself as a world of one. To be called before
/// MPI starts: some MPIs abort inside MPI_Init then. mpirun's own variables come first: inside a batch job it may rightly
/// start fewer ranks than the job has tasks.
void check_launcher() {
  const int tasks = environment_number("SLURM_STEP_NUM_TASKS");
  for (const char* known : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})
    if (std::getenv(known) != nullptr) return;
  if (tasks > 1)
    throw EnvironmentError(
        fmt::format("srun started {} tasks without a process manager, so that each would run alone and print a result "
                    "of its own; use "
                    "srun --mpi=pmix (srun --mpi=list shows what there is), or mpirun",
                    tasks));
}

/// On the wall clock a thread of the network drives messages on (device/network.hpp).
void check_threads(int provided) {
  if (provided < MPI_THREAD_SERIALIZED)
    throw EnvironmentError(fmt::format(
        "MPI gives thread level {} where MPI_THREAD_SERIALIZED = {} is needed, so that a second thread of a rank may "
        "drive messages on while the first computes; use an MPI library built with threads",
        provided, MPI_THREAD_SERIALIZED));
}

/// The launcher's own count against the world.
void check_world(int world) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const int tasks = environment_number(name);
    if (tasks > 0 && tasks != world)
      throw EnvironmentError(
          fmt::format("the launcher started {} tasks ({}), but MPI sees a world of {}: launcher and library do not "
                      "belong together; "
                      "use the mpirun of the MPI that the program was built with",
                      tasks, name, world));
  }
}

}  // namespace

Session::Session() {
  check_launcher();
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &facts_.world);
  try {
    check_threads(provided);
    check_world(facts_.world);
  } catch (...) {
    MPI_Finalize();
    throw;
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

void Session::abort(ExitCode code, std::string_view message) const {
  // What fails everywhere alike is said once: the first rank's message ends the job before the others speak.
  if (rank_ != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  fmt::print(stderr, "spillway: error: rank {} on {}: {}\n", rank_, host_, message);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();
}

std::string Session::broadcast(const std::string& text) const {
  long long length = static_cast<long long>(text.size());
  MPI_Bcast(&length, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
  std::string received = text;
  received.resize(static_cast<std::size_t>(length));
  constexpr std::size_t piece = std::size_t{1} << 30;
  for (std::size_t at = 0; at < received.size(); at += piece)
    MPI_Bcast(received.data() + at, static_cast<int>(std::min(piece, received.size() - at)), MPI_CHAR, 0,
              MPI_COMM_WORLD);
  return received;
}

}  // namespace spillway
