#pragma once
// How often a memory of earlier answers was asked, and how often it knew.
#include <cstdint>

namespace spillway {

struct CacheCounts {
  std::int64_t lookups = 0, hits = 0;
};

}  // namespace spillway
