// What lives in one recording: pools, segments and blocks. Chapters retell it, and gaps hide ends; the book tells a
// listener of each life once, in the order of time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "src/report/eras.h"
#include "src/report/pool_members.h"
#include "src/report/texts.h"

namespace commpool::internal::report {

// A segment is whole memory of the driver, or a range of mapped pages of an expandable pool, of which a part may go.
enum class SegmentKind : uint8_t { kWhole, kPages };

// A block or a segment. `requested`, `stream` and `stack` are of blocks, `kind` of segments.
struct Memory {
  uint64_t number = 0;  // by its first serving
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t requested = 0;
  uint64_t stream = 0;  // its key
  uint32_t stack = kNoText;
  uint32_t segment = UINT32_MAX;  // the listener's number of the segment, or of the block's
  uint64_t pool = 0;              // its handle
  int64_t device = 0;
  SegmentKind kind = SegmentKind::kWhole;
  Life life = {};
};

// Whatever it does not override is nothing to it.
class MemoryListener {
 public:
  MemoryListener() = default;
  virtual ~MemoryListener() = default;
  MemoryListener(const MemoryListener&) = delete;
  MemoryListener& operator=(const MemoryListener&) = delete;

  virtual void Served(int64_t, Memory&) {}
  virtual void Freed(int64_t, const Memory&) {}
  virtual void SegmentMade(int64_t, Memory&) {}
  // `gone` is the segment or a part of it; what is left of it follows.
  virtual void SegmentGone(int64_t, const Memory& /*segment*/, const Memory& /*gone*/) {}
  virtual void SegmentLeft(int64_t, Memory&) {}
  // After a gap: it has lived on.
  virtual void BlockRetold(int64_t, const Memory&) {}
  virtual void SegmentRetold(int64_t, const Memory&) {}
  virtual void PoolMade(const recording::PoolMade&, const Life&) {}
  // What it held is gone.
  virtual void PoolGone(int64_t, uint64_t) {}
};

// A taker of entries (page_entries.h).
class MemoryBook {
 public:
  using Memories = std::map<uint64_t, Memory>;  // by address

  MemoryBook(Texts& texts, MemoryListener& listener) : texts_(texts), listener_(&listener) {}
  MemoryBook(const MemoryBook&) = delete;
  MemoryBook& operator=(const MemoryBook&) = delete;

  // Returns whether it begins an era.
  bool BeginChapter(int64_t time, Before before);
  void Take(int64_t, const recording::Text& entry) { texts_.Learn(entry.number, entry.text); }
  void Take(int64_t time, const recording::PoolMade& entry);
  void Take(int64_t time, const recording::PoolGone& entry);
  void Take(int64_t time, const recording::SegmentMade& entry);
  void Take(int64_t time, const recording::SegmentGone& entry);
  void Take(int64_t time, const recording::BlockServed& entry);
  void Take(int64_t time, const recording::BlockFreed& entry);
  void Take(int64_t, const recording::SmallBlocks& entry) { small_served_ += entry.served; }
  void Take(int64_t time, const recording::Lost&);
  // Of an entry that a chapter tells behind all memory: ends what the chapter after a gap has not retold, and then
  // begins what came in the gap. Both may have one address.
  void Settle(int64_t time);
  void Finish() { Settle(eras_.last()); }

  const Eras& eras() const { return eras_; }
  const ChapterTexts& texts() const { return texts_; }
  // What lives at the end.
  const Memories& segments() const { return segments_; }
  const Memories& blocks() const { return blocks_; }
  // Of a pool that lives.
  const Life& LifeOf(uint64_t pool) const { return pools_.at(pool).life; }
  // Blocks of threads' caches, which nobody names one by one.
  uint64_t small_served() const { return small_served_; }

 private:
  struct Pool {
    int64_t device = 0;
    SegmentKind kind = SegmentKind::kWhole;
    Life life;
  };

  // What is known to have ended in a gap ended before `time`.
  int64_t EndOf(const Life& life, int64_t time) const { return eras_.Knows(life) ? time : eras_.EndOf(life); }
  void Reach(int64_t time);
  // Begins memory that is new. After a gap it waits until the chapter has retold all.
  void Meet(Memories& living, Memory memory, int64_t time, uint64_t age);
  void Begin(Memories& living, Memory memory, int64_t time);
  void End(Memories& living, Memories::iterator memory, int64_t time);
  void EndUnknown(Memories& living);
  void EndPool(uint64_t handle, int64_t time);

  ChapterTexts texts_;
  MemoryListener* listener_;
  Eras eras_;
  std::unordered_map<uint64_t, Pool> pools_;  // by handle
  Memories segments_;
  Memories blocks_;
  PoolMembers segments_of_;  // by the pool's handle
  PoolMembers blocks_of_;
  std::optional<int64_t> unsettled_;  // when the chapter after a gap begins, until it has retold all
  Memories told_segments_;            // what that chapter has told and nobody knew
  Memories told_blocks_;
  uint64_t next_number_ = 0;
  uint64_t small_served_ = 0;
};

}  // namespace commpool::internal::report
