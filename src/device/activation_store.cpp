#include "device/activation_store.hpp"

#include "base/error.hpp"
#include "workload/shape/quantized.hpp"

namespace spillway::device {

ActivationStore::ActivationStore(Memory memory, int micro_batches, int blocks)
    : memory_(memory),
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

/// Null when the cap does not allow it; `copied` receives the end of the copies whose share of the cap it takes over.
void* ActivationStore::take(Arena& arena, Category category, Bytes bytes, Seconds& copied) {
  const Bytes rounded = round_up(bytes, arena.ledger().alignment());
  if (arena.ledger().live() + rounded > arena.cap()) return nullptr;
  copied = arena.make_room(bytes, memory_.clock.compute_lane());
  return arena.allocate(category, bytes);
}

bool ActivationStore::allocate(TensorKey key, const Extent& extent, Category category) {
  Slot& s = slot(key);
  ensure(s.data == nullptr, "{} of micro-batch {}, block {} is allocated twice", name(key.tensor), key.micro_batch,
         key.block);
  Seconds copied;
  void* block = take(memory_.device, category, extent.bytes(), copied);
  if (block == nullptr) return false;
  s = Slot{};
  s.data = static_cast<float*>(block);
  s.rows = extent.rows;
  s.cols = extent.cols;
  s.ready = s.copied = copied;
  return true;
}

void ActivationStore::release(TensorKey key) {
  Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {}, block {} is released, but not there", name(key.tensor),
         key.micro_batch, key.block);
  memory_.device.release(s.data);
  s.data = nullptr;
}

void ActivationStore::release_when(TensorKey key, std::function<bool()> idle) {
  Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {} is released, but not there", name(key.tensor), key.micro_batch);
  memory_.device.release_when(s.data, std::move(idle));
  s.data = nullptr;
}

Matrix<float> ActivationStore::get(TensorKey key) const {
  const Slot& s = slot(key);
  ensure(s.data != nullptr, "{} of micro-batch {}, block {} is needed, but not there", name(key.tensor),
         key.micro_batch, key.block);
  return {s.data, s.rows, s.cols};
}

bool ActivationStore::offload(TensorKey key, Category category) {
  Slot& s = slot(key);
  ensure(s.data != nullptr && s.host == nullptr, "{} of micro-batch {}, block {} cannot be offloaded", name(key.tensor),
         key.micro_batch, key.block);
  Seconds room;
  s.host = take(memory_.host, category, s.bytes(), room);
  if (s.host == nullptr) return false;
  const Seconds ready = std::max({s.ready, room, memory_.clock.compute_lane()});
  s.copy = memory_.copies.copy(CopyLane::out, {s.host, s.data, s.bytes(), ready, std::nullopt});
  memory_.device.release_after(s.data, *s.copy);
  s.data = nullptr;
  return true;
}

bool ActivationStore::reload(TensorKey key, Category category) {
  Slot& s = slot(key);
  ensure(s.data == nullptr && s.host != nullptr, "{} of micro-batch {}, block {} is not in the host tier",
         name(key.tensor), key.micro_batch, key.block);
  Seconds room;
  s.data = static_cast<float*>(take(memory_.device, category, s.bytes(), room));
  if (s.data == nullptr) return false;
  const Seconds ready = std::max(room, memory_.clock.compute_lane());
  s.copy = memory_.copies.copy(CopyLane::in, {s.data, s.host, s.bytes(), ready, s.copy});
  memory_.host.release_after(s.host, *s.copy);
  s.host = nullptr;
  s.ready = s.copied = s.copy->end();
  return true;
}

bool ActivationStore::allocate_small(TensorKey key, Category category) {
  Slot& s = slot(key);
  Seconds room;
  s.small = take(memory_.device, category, quantized_bytes(s.rows * s.cols), room);
  s.ready = std::max(s.ready, room);
  s.copied = std::max(s.copied, room);
  return s.small != nullptr;
}

void ActivationStore::release_small(TensorKey key) {
  Slot& s = slot(key);
  ensure(s.small != nullptr, "the FP8 form of {} is released, but not there", name(key.tensor));
  memory_.device.release(s.small);
  s.small = nullptr;
}

/// Scales first: they ask for their alignment, values do not.
ActivationStore::Small ActivationStore::small(TensorKey key) const {
  const Slot& s = slot(key);
  ensure(s.small != nullptr, "the FP8 form of {} is needed, but not there", name(key.tensor));
  const std::int64_t groups = (s.rows * s.cols + fp8_group - 1) / fp8_group;
  auto* scales = static_cast<float*>(s.small);
  return {reinterpret_cast<std::uint8_t*>(scales + groups), scales};
}

bool ActivationStore::allocate_again(TensorKey key, Category category) {
  Slot& s = slot(key);
  Seconds room;
  s.data = static_cast<float*>(take(memory_.device, category, s.bytes(), room));
  s.ready = std::max(s.ready, room);
  s.copied = std::max(s.copied, room);
  return s.data != nullptr;
}

void ActivationStore::set_ready(TensorKey key, Seconds time) {
  Slot& s = slot(key);
  s.ready = time;
  s.copied = Seconds(0);
}

bool ActivationStore::wait(TensorKey key) {
  Slot& s = slot(key);
  if (!s.copy || s.data == nullptr) return false;
  const bool waits = !s.copy->done();
  s.copy->wait();
  s.copy.reset();
  return waits;
}

void ActivationStore::settle() {
  memory_.device.make_room(Bytes(0), memory_.clock.now());
  memory_.host.make_room(Bytes(0), memory_.clock.now());
}

void ActivationStore::clear() {
  for (Slot& s : slots_) {
    if (s.copy) s.copy->wait();
    if (s.data != nullptr) memory_.device.release(s.data);
    if (s.small != nullptr) memory_.device.release(s.small);
    if (s.host != nullptr) memory_.host.release(s.host);
    s = Slot{};
  }
}

}  // namespace spillway::device
