// Spillway. The commands and what each does are listed in app/commands.cpp; the life of a run is app/command_run.cpp.
#include <cstdio>
#include <exception>
#include <new>

#include "app/commands.hpp"
#include "app/launcher.hpp"

namespace {

using spillway::ExitCode;

/// Complaints about the input are the same on every rank and come from the first; others come from whoever has them.
/// An empty message has been reported by another rank.
int leave(ExitCode code, const char* message) {
  const bool mine = code != ExitCode::usage || spillway::app::is_first_rank();
  if (mine && *message) std::fprintf(stderr, "spillway: error: %s\n", message);
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return static_cast<int>(spillway::app::run_command_line(argc, argv));
  } catch (const spillway::Error& error) {
    return leave(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return leave(ExitCode::environment, "the host has no more memory to give");
  } catch (const std::exception& error) {
    return leave(ExitCode::invalid, error.what());
  }
}
