// MPI and Kokkos live around all tests of the run.
#include <gtest/gtest.h>
#include <mpi.h>

#include <Kokkos_Core.hpp>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MPI_Init(&argc, &argv);
  const int failed = [&] {
    Kokkos::ScopeGuard kokkos(argc, argv);
    return RUN_ALL_TESTS();
  }();
  MPI_Finalize();
  return failed;
}
