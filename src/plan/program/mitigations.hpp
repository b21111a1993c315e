#pragma once
// What becomes of a block's tensors between the forward pass that makes them and the backward pass that reads them.
#include <cstdint>
#include <string_view>

#include "workload/shape/tensors.hpp"

namespace spillway {

enum class Treatment : unsigned char {
  keep,       ///< stays on the device
  recompute,  ///< released after its last use in forward, made again in backward
  offload,    ///< copied to the host tier, copied back before backward
  quantize    ///< stays on the device as FP8; lossy
};

/// The treatment of every tensor a block saves, for one micro-batch. A tensor in no set is recomputed. Every consumer of
/// a tensor finds the same copy of it: whether they agree is checked where treatments are chosen by operator
/// (policy/conflicts).
struct Mitigations {
  TensorSet keep, offload, quantize;
  /// 0: the whole dispatch at once. Otherwise it is done in slices of so many tiles per rank, forward and backward, and
  /// nothing on the experts' side is saved.
  std::int64_t tiles_per_slice = 0;

  static Mitigations keep_all() { return {TensorSet::all(), {}, {}, 0}; }
  /// Tensors that backward finds without computing them.
  TensorSet available() const { return keep | offload | quantize; }
  Treatment of(Tensor t) const {
    if (keep.contains(t)) return Treatment::keep;
    if (offload.contains(t)) return Treatment::offload;
    return quantize.contains(t) ? Treatment::quantize : Treatment::recompute;
  }
  void set(Tensor t, Treatment treatment) {
    keep.erase(t);
    offload.erase(t);
    quantize.erase(t);
    if (treatment == Treatment::keep) keep.insert(t);
    if (treatment == Treatment::offload) offload.insert(t);
    if (treatment == Treatment::quantize) quantize.insert(t);
  }
  bool operator==(const Mitigations&) const = default;
};

constexpr std::string_view name(Treatment t) {
  constexpr std::string_view names[] = {"keep", "recompute", "offload", "quantize"};
  return names[static_cast<int>(t)];
}

}  // namespace spillway
