#include "app/launcher.hpp"

#include <cstdlib>
#include <string_view>

namespace spillway::app {

bool is_first_rank() {
  // Open MPI, PMIx, MPICH and Intel MPI (PMI), MVAPICH, Slurm; the innermost launcher first.
  for (const char* variable :
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(variable)) return std::string_view(rank) == "0";
  }
  return true;
}

}  // namespace spillway::app
