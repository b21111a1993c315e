// What the test program spillway_faulty has beside src/main.cpp. SPILLWAY_FAULT names a fault that the verification
// must catch; SPILLWAY_END = "HOW PHASE RANK" ends one rank when it reaches a phase: HOW is `kill` (SIGKILL) or `throw`
// (an exception of its own). Phases that come in the verification too count from the measurement on.
#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "device/fault.hpp"

namespace {

using namespace spillway;
using device::Phase;

struct Ending {
  bool kill = false;
  Phase phase = Phase::start;
  int rank = 0;
  bool measuring = false;
} ending;

void end_here(Phase phase) {
  ending.measuring |= phase == Phase::measurement;
  if (phase != ending.phase || (phase > Phase::measurement && !ending.measuring)) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != ending.rank) return;
  if (ending.kill) std::raise(SIGKILL);
  throw InternalError("a fault that a test put here");
}

/// Reads the environment before main does anything.
[[maybe_unused]] const bool prepared = [] {
  if (const char* fault = std::getenv("SPILLWAY_FAULT")) device::injected_fault = device::parse_fault(fault);
  if (const char* text = std::getenv("SPILLWAY_END")) {
    std::istringstream words(text);
    std::string how, phase;
    words >> how >> phase >> ending.rank;
    require_input(!words.fail() && (how == "kill" || how == "throw"), "SPILLWAY_END = {}: expected HOW PHASE RANK",
                  text);
    ending.kill = how == "kill";
    ending.phase = device::parse_phase(phase);
    device::on_phase = end_here;
  }
  return true;
}();

}  // namespace
