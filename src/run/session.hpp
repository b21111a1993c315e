#pragma once
// MPI and Kokkos for the life of the process, and what the launcher gave this job.
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "run/case.hpp"

namespace spillway {

class Session {
 public:
  /// Initialises MPI, checks the launcher's task count against the world, then Kokkos with a fair share of the node's
  /// cores. Throws EnvironmentError.
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }
  int world() const { return facts_.world; }
  const LaunchFacts& facts() const { return facts_; }
  int threads() const { return threads_; }
  /// Has every rank of this node a core beside those of its threads?
  bool spare_cores() const { return facts_.cores_on_this_node >= facts_.ranks_on_this_node * (threads_ + 1); }
  /// Node of every world rank, numbered in the order of their first ranks.
  const std::vector<int>& node_of_rank() const { return node_of_rank_; }
  /// Rank 0's text reaches every rank. Collective.
  std::string broadcast(const std::string& text) const;
  /// Says which rank and host failed and ends every rank of the job with this exit code.
  [[noreturn]] void abort(ExitCode code, std::string_view message) const;
  /// This rank's node name.
  const std::string& host() const { return host_; }

 private:
  void find_nodes();

  int rank_ = 0;
  int threads_ = 1;
  LaunchFacts facts_;
  std::vector<int> node_of_rank_;
  std::string host_;
};

}  // namespace spillway
