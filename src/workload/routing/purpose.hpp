#pragma once
// What a seeded stream is drawn for: one name per stream, so that no two share numbers.
#include <cstdint>

namespace spillway {

enum class Purpose : std::uint64_t {
  burst_offset = 1,
  topic,
  profile,
  window,
  hot_set,
  expert_order,
  exchange,
  checksum
};

}  // namespace spillway
