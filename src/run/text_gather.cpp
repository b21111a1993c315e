#include "run/text_gather.hpp"

#include <mpi.h>

#include <algorithm>

namespace spillway {
namespace {

constexpr std::size_t piece_size = std::size_t{1} << 26;

}  // namespace

void gather_texts(const std::string& mine, const Session& session, const TakeText& take) {
  if (session.rank() != 0) {
    const auto size = static_cast<long long>(mine.size());
    MPI_Send(&size, 1, MPI_LONG_LONG, 0, 0, MPI_COMM_WORLD);
    for (std::size_t at = 0; at < mine.size(); at += piece_size)
      MPI_Send(mine.data() + at, static_cast<int>(std::min(piece_size, mine.size() - at)), MPI_CHAR, 0, 1,
               MPI_COMM_WORLD);
    return;
  }
  take(0, mine);
  std::string piece;
  for (int rank = 1; rank < session.world(); ++rank) {
    long long size = 0;
    MPI_Recv(&size, 1, MPI_LONG_LONG, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (auto left = static_cast<std::size_t>(size); left > 0; left -= piece.size()) {
      piece.resize(std::min(piece_size, left));
      MPI_Recv(piece.data(), static_cast<int>(piece.size()), MPI_CHAR, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      take(rank, piece);
    }
  }
}

}  // namespace spillway
