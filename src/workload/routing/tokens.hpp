#pragma once
// Synthetic text: token ids as a function of (seed, iteration, global sequence index, position), and their labels.
#include <cstdint>
#include <span>

#include "base/random.hpp"

namespace spillway {

struct TokenSource {
  std::uint64_t seed = 1;
  std::int64_t vocab_size = 2;

  /// Ids of one sequence.
  void tokens(std::int64_t iteration, std::int64_t sequence, std::span<std::int32_t> ids) const {
    const CounterRandom random(seed, 0x70C35, iteration, sequence);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(vocab_size)));
  }
  /// What should follow a token: a fixed shift of the vocabulary, so that there is something to learn.
  std::int32_t label(std::int32_t token) const {
    return static_cast<std::int32_t>((token + vocab_size / 2) % vocab_size);
  }
};

/// Key of the noise that stands in for embedded tokens when a model has no embedding.
constexpr std::uint64_t synthetic_input_key(std::uint64_t seed, std::int64_t iteration, std::int64_t sequence) {
  return mix(seed, 0x1A9Bu, iteration, sequence);
}

}  // namespace spillway
