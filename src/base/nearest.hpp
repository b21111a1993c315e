#pragma once
// Suggestions for mistyped names.
#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Fewest insertions, deletions and replacements of one character that turn `a` into `b` (Levenshtein distance).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distances of the part of `a` seen so far to every prefix of `b`
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// The candidate with the least edit distance to `word`, the first of equals; empty without candidates.
template <class Names>
std::string nearest(std::string_view word, const Names& candidates) {
  std::string best;
  std::size_t least = std::string::npos;
  for (const auto& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace spillway
