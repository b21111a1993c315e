#pragma once
// The tensors of all micro-batches in flight on one stage: where each lives in the arena and when it is ready.
#include <cstdint>
#include <span>
#include <vector>

#include "device/arena.hpp"
#include "device/matrix.hpp"
#include "workload/shape/tensors.hpp"

namespace spillway::device {

/// Names a tensor of a stage. block_output of a block is block_input of the next one; d_residual is one per micro-batch.
struct TensorKey {
  int micro_batch = 0;
  int block = 0;
  Tensor tensor = Tensor::block_input;
};

class ActivationStore {
 public:
  ActivationStore(Arena& arena, int micro_batches, int blocks);
  ~ActivationStore() { clear(); }
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  /// False when the arena's cap does not allow it.
  bool allocate(TensorKey key, const Extent& extent, Category category);
  void release(TensorKey key);
  /// As release; the space is not reused before `idle` says so.
  void release_when(TensorKey key, std::function<bool()> idle);
  bool holds(TensorKey key) const { return slot(key).data != nullptr; }
  /// The tensor as floats; throws InternalError when it is not there.
  Matrix<float> get(TensorKey key) const;

  Seconds ready(TensorKey key) const { return slot(key).ready; }
  void set_ready(TensorKey key, Seconds time) { slot(key).ready = time; }
  /// Releases everything.
  void clear();

 private:
  struct Slot {
    float* data = nullptr;
    std::int64_t rows = 0, cols = 0;
    Seconds ready;
  };
  std::size_t index(TensorKey key) const;
  Slot& slot(TensorKey key) { return slots_[index(key)]; }
  const Slot& slot(TensorKey key) const { return slots_[index(key)]; }

  Arena& arena_;
  int blocks_;
  std::vector<Slot> slots_;
};

}  // namespace spillway::device
