#pragma once
// Device memory under a hard cap. The cap limits the sum of live blocks, each rounded to the alignment; the backing is
// larger, so that fragmentation shows in `reserved` but cannot make an allocation fail.
#include <functional>
#include <map>
#include <vector>

#include "base/ledger.hpp"

namespace spillway::device {

struct ArenaOptions {
  Bytes cap{std::int64_t{1} << 40};
  Bytes alignment{256};
  Bytes backing{};  ///< address space; 0: twice the machine's memory
#ifdef NDEBUG
  bool poison_freed = false;  ///< freed blocks become NaNs, so that a use after release shows
#else
  bool poison_freed = true;
#endif
};

class Arena {
 public:
  explicit Arena(ArenaOptions options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Null when the block would exceed the cap. Zero bytes cost nothing and give a pointer, the same every time, that must
  /// not be read. The contents are undefined. Throws EnvironmentError when the backing itself is exhausted.
  void* allocate(Category category, Bytes bytes);
  /// Throws InternalError for what is not a live block (released twice, or never allocated). Blocks of zero bytes may be
  /// released any number of times.
  void release(void* block);
  /// Off the ledger at once, but its space is not given to anybody before `idle` says so (a message still reads it).
  void release_when(void* block, std::function<bool()> idle);

  const ByteLedger& ledger() const { return ledger_; }
  void reset_peaks() { ledger_.reset_peaks(); }
  Bytes cap() const { return options_.cap; }
  /// Bytes up to the highest address ever used: live blocks and the holes between them.
  Bytes reserved() const { return Bytes(high_water_); }

 private:
  struct Live {
    Category category;
    Bytes asked;
  };
  struct Busy {
    std::int64_t offset, size;
    std::function<bool()> idle;
  };
  std::int64_t take_hole(std::int64_t size);
  void give_hole(std::int64_t offset, std::int64_t size);
  void collect_idle();
  /// Takes a live block off the ledger; returns its rounded size.
  std::int64_t forget(void* block);
  /// What a block of zero bytes gets: just past the backing, so that it is nobody's block.
  void* nothing() const { return base_ + options_.backing.value; }

  ArenaOptions options_;
  ByteLedger ledger_;
  char* base_ = nullptr;
  std::int64_t high_water_ = 0;
  std::map<std::int64_t, std::int64_t> holes_;  // offset -> size, never adjacent
  std::map<void*, Live> live_;
  std::vector<Busy> busy_;
};

}  // namespace spillway::device
