#pragma once
// What the launcher's environment says before any session exists.

namespace spillway::app {

/// True for rank 0 of an MPI launch and for a process started alone: the one that prints help and complaints about the
/// command line, which every rank sees alike.
bool is_first_rank();

}  // namespace spillway::app
