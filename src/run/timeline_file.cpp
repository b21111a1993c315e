#include "run/timeline_file.hpp"

#include <mpi.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "metrics/atomic_file.hpp"
#include "run/text_gather.hpp"

namespace spillway {

void write_timeline(const std::filesystem::path& file, const TimelineHeader& header, const RankTimeline& mine,
                    const Session& session) {
  std::optional<AtomicWriter> writer;
  std::exception_ptr failure;
  const auto attempt = [&failure](const auto& action) {
    if (failure) return;
    try {
      action();
    } catch (...) {
      failure = std::current_exception();  // the others still send theirs
    }
  };
  if (session.rank() == 0)
    attempt([&] {
      writer.emplace(file);
      writer->write(timeline_head(header));
    });
  int last = 0;
  gather_texts(timeline_events(mine, header.virtual_clock), session, [&](int rank, std::string_view piece) {
    attempt([&] {
      if (rank != std::exchange(last, rank)) writer->write(",\n");
      writer->write(piece);
    });
  });
  if (session.rank() != 0) return;
  attempt([&] {
    writer->write(timeline_tail());
    writer->commit();
  });
  if (failure) std::rethrow_exception(failure);
}

ClockSkew clock_skew(const device::Clock& clock) {
  if (clock.is_virtual()) return {};
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(clock.origin().time_since_epoch());
  const auto mine = static_cast<std::int64_t>(nanoseconds.count());
  std::int64_t first = mine;
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT64_T, MPI_MIN, node);
  MPI_Comm_free(&node);
  std::int64_t largest = mine - first;
  MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
  return {Seconds(static_cast<double>(mine - first) * 1e-9), Seconds(static_cast<double>(largest) * 1e-9)};
}

}  // namespace spillway
