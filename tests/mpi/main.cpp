// One session around all tests; every rank runs them, and the job fails where one rank's do.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

#include "support.hpp"

namespace spillway::test {
namespace {

const Session* current = nullptr;

/// What ranks other than the first show: their failures alone.
class FailuresOnly final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", current->rank(), result.file_name(), result.line_number(),
                   result.summary());
  }
};

}  // namespace

const Session& session() { return *current; }

}  // namespace spillway::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // An exception on one rank ends the job: the others would wait for its messages.
  GTEST_FLAG_SET(catch_exceptions, false);
  const spillway::Session session;
  spillway::test::current = &session;
  testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  if (session.rank() != 0) {
    delete tests.listeners().Release(tests.listeners().default_result_printer());
    tests.listeners().Append(new spillway::test::FailuresOnly);
  }
  int failed = 0;
  try {
    failed = RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    session.abort(spillway::ExitCode::invalid, error.what());
  }
  if (tests.test_to_run_count() == 0) failed = 1;  // a filter that selects nothing tests nothing
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed;
}
