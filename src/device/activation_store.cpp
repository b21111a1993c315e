#include "device/activation_store.hpp"

#include "base/error.hpp"

namespace spillway::device {

ActivationStore::ActivationStore(Arena& arena, int micro_batches, int blocks)
    : arena_(arena),
      blocks_(blocks),
      slots_(static_cast<std::size_t>(micro_batches) * static_cast<std::size_t>(blocks + 1) * tensor_count) {}

std::size_t ActivationStore::index(TensorKey key) const {
  if (key.tensor == Tensor::block_output) key = {key.micro_batch, key.block + 1, Tensor::block_input};
  if (key.tensor == Tensor::d_residual) key.block = 0;
  return (static_cast<std::size_t>(key.micro_batch) * static_cast<std::size_t>(blocks_ + 1) +
          static_cast<std::size_t>(key.block)) *
             tensor_count +
         static_cast<std::size_t>(key.tensor);
}

bool ActivationStore::allocate(TensorKey key, const Extent& extent, Category category) {
  Slot& s = slot(key);
  ensure(s.data == nullptr, "{} of micro-batch {}, block {} is allocated twice", name(key.tensor), key.micro_batch,
         key.block);
  void* block = arena_.allocate(category, extent.bytes());
  if (block == nullptr) return false;
  s = {static_cast<float*>(block), extent.rows, extent.cols, Seconds(0)};
  return true;
}

void ActivationStore::release(TensorKey key) {
  Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {}, block {} is released, but not there", name(key.tensor),
         key.micro_batch, key.block);
  arena_.release(s.data);
  s.data = nullptr;
}

void ActivationStore::release_when(TensorKey key, std::function<bool()> idle) {
  Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {} is released, but not there", name(key.tensor), key.micro_batch);
  arena_.release_when(s.data, std::move(idle));
  s.data = nullptr;
}

Matrix<float> ActivationStore::get(TensorKey key) const {
  const Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {}, block {} is needed, but not there", name(key.tensor),
         key.micro_batch, key.block);
  return {s.data, s.rows, s.cols};
}

void ActivationStore::clear() {
  for (Slot& s : slots_)
    if (s.data != nullptr) {
      arena_.release(s.data);
      s.data = nullptr;
    }
}

}  // namespace spillway::device
