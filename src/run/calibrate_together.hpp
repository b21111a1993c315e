#pragma once
// Times work that all ranks of a communicator do at once, as the ranks of a run do: what they share in a run, they
// share here.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace spillway {

class Together {
 public:
  Together(MPI_Comm comm, int repetitions) : comm_(comm), repetitions_(repetitions) {}

  int repetitions() const { return repetitions_; }

  /// Seconds of `body`, begun by all ranks together: [ranks * repetitions]. One repetition before them is not counted.
  /// Collective over the communicator; the result is the same on all.
  template <class Body>
  std::vector<double> seconds(const Body& body) const {
    std::vector<double> mine;
    for (int i = 0; i <= repetitions_; ++i) {
      MPI_Barrier(comm_);
      const auto begun = std::chrono::steady_clock::now();
      body();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
      if (i > 0) mine.push_back(taken.count());
    }
    return gather(mine);
  }

  /// [repetitions] seconds of the slowest rank.
  template <class Body>
  std::vector<double> slowest(const Body& body) const {
    const std::vector<double> all = seconds(body);
    std::vector<double> longest(static_cast<std::size_t>(repetitions_), 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      double& value = longest[i % longest.size()];
      value = std::max(value, all[i]);
    }
    return longest;
  }

 private:
  std::vector<double> gather(const std::vector<double>& mine) const {
    int ranks = 0;
    MPI_Comm_size(comm_, &ranks);
    std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks));
    MPI_Allgather(mine.data(), repetitions_, MPI_DOUBLE, all.data(), repetitions_, MPI_DOUBLE, comm_);
    return all;
  }

  MPI_Comm comm_;
  int repetitions_;
};

}  // namespace spillway
