#include "device/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "base/error.hpp"

namespace spillway::device {
namespace {

Bytes default_backing() {
  return Bytes(2 * std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGE_SIZE)});
}

/// Where the addresses of an arena without memory begin: anywhere but at null.
constexpr std::uintptr_t phantom_base = std::uintptr_t{1} << 40;

}  // namespace

Arena::Arena(ArenaOptions options) : options_(options), ledger_(options.alignment) {
  if (options_.backing.value == 0) options_.backing = default_backing();
  holes_[0] = options_.backing.value;
  if (options_.phantom) {
    base_ = reinterpret_cast<char*>(phantom_base);
    return;
  }
  void* mapped = mmap(nullptr, static_cast<std::size_t>(options_.backing.value), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    throw EnvironmentError(fmt::format("cannot reserve {:.0f} MiB of address space for the memory arena: {}",
                                       mebibytes(options_.backing), std::strerror(errno)));
  base_ = static_cast<char*>(mapped);
}

Arena::~Arena() {
  for (const Copied& c : copied_) c.copy.wait();
  if (!options_.phantom) munmap(base_, static_cast<std::size_t>(options_.backing.value));
}

void* Arena::allocate(Category category, Bytes bytes) {
  if (bytes.value == 0) return nothing();
  const Bytes rounded = round_up(bytes, options_.alignment);
  if (ledger_.live() + rounded > options_.cap) return nullptr;
  collect_idle();
  char* block = base_ + take_hole(rounded.value);
  live_[block] = {category, bytes};
  ledger_.add(category, bytes);
  return block;
}

void Arena::release(void* block) {
  if (block == nothing()) return;
  const std::int64_t size = forget(block);
  give_hole(static_cast<char*>(block) - base_, size);
}

void Arena::release_when(void* block, std::function<bool()> idle) {
  if (block == nothing()) return;
  const std::int64_t size = forget(block);
  busy_.push_back({static_cast<char*>(block) - base_, size, std::move(idle)});
}

void Arena::release_after(void* block, Event copy) {
  if (block == nothing()) return;
  const std::int64_t size = forget(block);
  busy_.push_back({static_cast<char*>(block) - base_, size, [copy] { return copy.done(); }});
  copied_.push_back({Bytes(size), std::move(copy)});
  still_copied_ += Bytes(size);
}

Seconds Arena::make_room(Bytes bytes, Seconds now) {
  std::erase_if(copied_, [&](const Copied& c) {
    const bool ended = c.copy.end() > Seconds(0) ? c.copy.end() <= now : c.copy.done();
    if (ended) still_copied_ -= c.size;
    return ended;
  });
  const Bytes room = options_.cap - round_up(bytes, options_.alignment);
  Seconds latest;
  while (!copied_.empty() && ledger_.live() + still_copied_ > room) {
    const Copied& oldest = copied_.front();
    oldest.copy.wait();
    latest = std::max(latest, oldest.copy.end());
    still_copied_ -= oldest.size;
    copied_.pop_front();
  }
  return latest;
}

std::int64_t Arena::forget(void* block) {
  const auto found = live_.find(block);
  ensure(found != live_.end(), "memory at {} is released, but no live block begins there", block);
  const auto [category, asked] = found->second;
  ledger_.remove(category, asked);
  live_.erase(found);
  return round_up(asked, options_.alignment).value;
}

void Arena::collect_idle() {
  std::erase_if(busy_, [this](const Busy& b) {
    if (!b.idle()) return false;
    give_hole(b.offset, b.size);
    return true;
  });
}

std::int64_t Arena::take_hole(std::int64_t size) {
  std::int64_t offset = find_hole(size);
  for (auto c = copied_.begin(); offset < 0 && c != copied_.end(); ++c) {
    c->copy.wait();
    collect_idle();
    offset = find_hole(size);
  }
  if (offset >= 0) return offset;
  throw EnvironmentError(fmt::format("the memory arena's backing of {:.0f} MiB has no hole of {} bytes left ({} live)",
                                     mebibytes(options_.backing), size, ledger_.live().value));
}

/// Offset of the first hole that is large enough, taken; negative where there is none.
std::int64_t Arena::find_hole(std::int64_t size) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [offset, space] = *hole;
    if (space < size) continue;
    holes_.erase(hole);
    if (space > size) holes_[offset + size] = space - size;
    high_water_ = std::max(high_water_, offset + size);
    return offset;
  }
  return -1;
}

void Arena::give_hole(std::int64_t offset, std::int64_t size) {
  if (options_.poison_freed) std::memset(base_ + offset, 0xFF, static_cast<std::size_t>(size));
  auto next = holes_.lower_bound(offset);
  if (next != holes_.end() && offset + size == next->first) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  holes_[offset] = size;
}

}  // namespace spillway::device
