#pragma once
// Live and peak bytes by category: the same arithmetic in the operator table, the books and the arena.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/units.hpp"

namespace spillway {

enum class Category : unsigned char {
  parameters,
  gradients,
  optimizer,
  activation_moe,
  activation_other,
  communication,
  workspace
};
inline constexpr std::size_t category_count = 7;
inline constexpr std::array<std::string_view, category_count> category_names = {"parameters",       "gradients",
                                                                                "optimizer",        "activation_moe",
                                                                                "activation_other", "communication",
                                                                                "workspace"};

/// Sums of live blocks, each rounded up to the alignment, with the peak of every category, of the activations
/// (both kinds together) and of the total.
class ByteLedger {
 public:
  explicit ByteLedger(Bytes alignment = Bytes(256)) : alignment_(alignment) {}

  void add(Category category, Bytes bytes) { change(category, round_up(bytes, alignment_)); }
  void remove(Category category, Bytes bytes) { change(category, Bytes(0) - round_up(bytes, alignment_)); }

  Bytes alignment() const { return alignment_; }
  Bytes live() const { return total_; }
  Bytes live(Category category) const { return live_[index(category)]; }
  Bytes peak() const { return total_peak_; }
  Bytes peak(Category category) const { return peak_[index(category)]; }
  Bytes activation_peak() const { return activation_peak_; }
  /// Forgets past peaks: they restart from what is live now.
  void reset_peaks() {
    peak_ = live_;
    total_peak_ = total_;
    activation_peak_ = activations();
  }
  bool operator==(const ByteLedger&) const = default;

 private:
  static constexpr std::size_t index(Category c) { return static_cast<std::size_t>(c); }
  Bytes activations() const { return live(Category::activation_moe) + live(Category::activation_other); }
  void change(Category category, Bytes delta) {
    live_[index(category)] += delta;
    total_ += delta;
    peak_[index(category)] = std::max(peak_[index(category)], live_[index(category)]);
    total_peak_ = std::max(total_peak_, total_);
    activation_peak_ = std::max(activation_peak_, activations());
  }

  Bytes alignment_;
  std::array<Bytes, category_count> live_{}, peak_{};
  Bytes total_, total_peak_, activation_peak_;
};

}  // namespace spillway
