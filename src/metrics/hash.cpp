#include "metrics/hash.hpp"

#include <fmt/format.h>

#include <cstdint>

namespace spillway {

std::string result_hash(std::string_view canonical_config) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (const char c : canonical_config) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return fmt::format("{:08x}", static_cast<std::uint32_t>(h ^ (h >> 32)));
}

}  // namespace spillway
