#pragma once
// Device memory under a hard cap. The cap limits the sum of live blocks, each rounded to the alignment; the backing is
// larger, so that fragmentation shows in `reserved` but cannot make an allocation fail.
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "base/ledger.hpp"
#include "device/copies.hpp"

namespace spillway::device {

struct ArenaOptions {
  Bytes cap{std::int64_t{1} << 40};
  Bytes alignment{256};
  Bytes backing{};       ///< address space; 0: twice the machine's memory
  bool phantom = false;  ///< no memory behind it: a projection's, whose blocks nobody reads or writes
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
  /// As release_when, with a copy that still uses the block. Until that has ended, make_room counts the block's bytes
  /// as occupied; allocate, which looks at live blocks only, never fails for them.
  void release_after(void* block, Event copy);

  /// Waits for copies of release_after, oldest release first, until live blocks, those still copied and `bytes` fit
  /// the cap (or no copy is left). Returns the latest end of those waited for: what uses the new block may not begin
  /// before. 0 where none was waited for, and always on the wall clock.
  /// A copy counts as ended from the first call on that waited for it or saw its end() <= now, the time of the lane
  /// that needs the room; on the wall clock, that found it done(). Before the clock restarts, call with no bytes and
  /// the clock's now().
  Seconds make_room(Bytes bytes, Seconds now);
  /// Bytes that released blocks occupy until their copies count as ended.
  Bytes still_copied() const { return still_copied_; }

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
  struct Copied {
    Bytes size;
    Event copy;
  };
  std::int64_t take_hole(std::int64_t size);
  std::int64_t find_hole(std::int64_t size);
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
  std::vector<Busy> busy_;     // space
  std::deque<Copied> copied_;  // the cap's share of it, in order of release
  Bytes still_copied_;
};

}  // namespace spillway::device
