#pragma once
// Iterations as a table for spreadsheets and data frames.
#include <string>

#include "metrics/report.hpp"

namespace spillway {

/// One row per (policy, record of an iteration) with a header row; per RFC 4180, but lines end in \n. Empty cells do
/// not apply. Every row names the case, its hash and the clock, so tables of several results can be joined.
std::string iterations_csv(const Report& report);

/// One row per (policy, record of an iteration, rank): what the rank's lanes did.
std::string rank_iterations_csv(const Report& report);

}  // namespace spillway
