#include "device/ops/initialize.hpp"

#include <array>
#include <cmath>
#include <numbers>

#include "base/random.hpp"
#include "device/ops/blocks.hpp"

namespace spillway::device::ops {
namespace {

/// Elements of one Philox block: two pairs of uniform numbers make two pairs of normal ones (Box-Muller).
constexpr std::uint64_t block_size = 4;

/// The standard normal numbers of global elements [4 block, 4 block + 4).
std::array<float, block_size> normal_block(std::uint64_t key, std::uint64_t block) {
  const PhiloxBlock bits = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                                  {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  std::array<float, block_size> normal;
  for (std::size_t pair = 0; pair < block_size; pair += 2) {
    const float u = (static_cast<float>(bits[pair] >> 8) + 0.5f) * 0x1.0p-24f;
    const float angle = static_cast<float>(bits[pair + 1] >> 8) * (0x1.0p-23f * std::numbers::pi_v<float>);
    const float radius = std::sqrt(-2.0f * std::log(u));
    normal[pair] = radius * std::cos(angle);
    normal[pair + 1] = radius * std::sin(angle);
  }
  return normal;
}

}  // namespace

void initialize_normal(Matrix<float> x, std::uint64_t key, double standard_deviation, std::uint64_t first_index) {
  const auto scale = static_cast<float>(standard_deviation);
  Stream uncharged;
  parallel_blocks(uncharged, "initialize_normal", x.size(), element_block, [=](std::int64_t begin, std::int64_t end) {
    std::uint64_t index = first_index + static_cast<std::uint64_t>(begin);
    for (std::int64_t i = begin; i < end;) {
      const auto normal = normal_block(key, index / block_size);
      for (std::uint64_t lane = index % block_size; lane < block_size && i < end; ++lane, ++i, ++index)
        x.data[i] = scale * normal[lane];
    }
  });
}

}  // namespace spillway::device::ops
