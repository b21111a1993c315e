#pragma once
// Counts of MPI messages in rows, not bytes: an exchange may pass 2 GiB as long as its rows number below 2^31.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/error.hpp"

namespace spillway::device {

/// A count as MPI takes it; throws InternalError where it does not fit.
inline int to_count(std::int64_t rows) {
  ensure(rows >= 0 && rows <= std::numeric_limits<int>::max(), "{} rows do not fit an MPI count", rows);
  return static_cast<int>(rows);
}

/// Counts and displacements, in rows, of the members' parts of a buffer.
struct RowLayout {
  explicit RowLayout(std::span<const std::int64_t> rows) : counts(rows.size()), displacements(rows.size()) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      counts[i] = to_count(rows[i]);
      displacements[i] = to_count(total);
      total += rows[i];
    }
  }
  std::vector<int> counts, displacements;
  std::int64_t total = 0;
};

}  // namespace spillway::device
