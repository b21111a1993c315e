#pragma once
// The tensors of all micro-batches in flight on one stage: where each lives (device, host tier, FP8) and when it is ready.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "device/arena.hpp"
#include "device/copies.hpp"
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
  struct Memory {
    Arena& device;
    Arena& host;  ///< the host tier; the device's own arena where the two share memory
    CopyEngine& copies;
    Clock& clock;
  };
  ActivationStore(Memory memory, int micro_batches, int blocks);
  ~ActivationStore() { clear(); }
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  /// False when the arena's cap does not allow it. The tensor is ready when copies that still use its share of the cap
  /// have ended.
  bool allocate(TensorKey key, const Extent& extent, Category category);
  void release(TensorKey key);
  /// As release; the space is not reused before `idle` says so.
  void release_when(TensorKey key, std::function<bool()> idle);
  bool holds(TensorKey key) const { return slot(key).data != nullptr; }
  /// The tensor as floats; throws InternalError when it is not there.
  Matrix<float> get(TensorKey key) const;

  /// Issues the copy to the host tier and releases the device memory. False when the tier is full.
  bool offload(TensorKey key, Category category);
  /// Allocates device memory and issues the copy back. False when the cap does not allow it.
  bool reload(TensorKey key, Category category);

  /// The tensor's last copy, until something has waited for it.
  const Event& copy(TensorKey key) const { return slot(key).copy.value(); }

  /// Memory for the FP8 form of a tensor (values, then scales). False when the cap does not allow it.
  bool allocate_small(TensorKey key, Category category);
  void release_small(TensorKey key);
  struct Small {
    std::uint8_t* values;
    float* scales;
  };
  Small small(TensorKey key) const;
  /// Device memory for the tensor whose FP8 form is there.
  bool allocate_again(TensorKey key, Category category);

  std::int64_t elements(TensorKey key) const { return slot(key).rows * slot(key).cols; }
  Seconds ready(TensorKey key) const { return slot(key).ready; }
  void set_ready(TensorKey key, Seconds time);
  /// When the copies end that a tensor has to wait for, its own or those of its memory's last owner.
  Seconds copied(TensorKey key) const { return slot(key).copied; }
  /// Returns when the tensor's copy has arrived; true where there was one to wait for.
  bool wait(TensorKey key);
  /// Before the clock restarts: copies count as ended.
  void settle();
  /// Releases everything, once no copy uses it any more.
  void clear();

 private:
  struct Slot {
    float* data = nullptr;
    void* small = nullptr;
    void* host = nullptr;
    std::int64_t rows = 0, cols = 0;
    Seconds ready, copied;
    std::optional<Event> copy;  ///< out, then in
    Bytes bytes() const { return Bytes(rows * cols * 4); }
  };
  std::size_t index(TensorKey key) const;
  Slot& slot(TensorKey key) { return slots_[index(key)]; }
  const Slot& slot(TensorKey key) const { return slots_[index(key)]; }
  void* take(Arena& arena, Category category, Bytes bytes, Seconds& copied);

  Memory memory_;
  int blocks_;
  std::vector<Slot> slots_;
};

}  // namespace spillway::device
