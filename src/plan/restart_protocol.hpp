#pragma once
// The static restart protocol: plan for balance; out of memory kills the job, it comes back under a conservative policy,
// redoes the lost work, stays until the spike has passed and restarts once more to return.
#include <cstdint>

namespace spillway {

class RestartProtocol {
 public:
  struct Options {
    double calm_imbalance = 1.2;  ///< an iteration at or below it is calm
    int calm_iterations = 2;      ///< consecutive calm iterations before the return
  };
  explicit RestartProtocol(Options options) : options_(options) {}

  bool conservative() const { return conservative_; }

  /// The iteration ran out of memory: the job restarts under the conservative policy. Returns false when it already ran
  /// under that policy, so that nothing is left to fall back to.
  bool out_of_memory(std::int64_t iteration) {
    if (conservative_) return false;
    conservative_ = true;
    fatal_ = iteration;
    calm_ = 0;
    return true;
  }

  /// The iteration completed with this imbalance. Returns true when the job now restarts to return to its fast policy.
  /// Iterations redone on the way to the one that ran out of memory say nothing about whether the spike has passed.
  bool completed(std::int64_t iteration, double imbalance) {
    if (!conservative_ || iteration < fatal_) return false;
    calm_ = imbalance <= options_.calm_imbalance ? calm_ + 1 : 0;
    if (calm_ < options_.calm_iterations) return false;
    conservative_ = false;
    return true;
  }

 private:
  Options options_;
  bool conservative_ = false;
  int calm_ = 0;
  std::int64_t fatal_ = 0;
};

}  // namespace spillway
