// What was served and freed, each once: chapters retell what lives, and gaps hide ends.
#ifndef COMMPOOL_SRC_REPORT_ALLOCATION_HISTORY_H_
#define COMMPOOL_SRC_REPORT_ALLOCATION_HISTORY_H_

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
  uint64_t pool = 0;  // its handle
  int64_t device = 0;
  SegmentKind kind = SegmentKind::kWhole;
  Life life;
};

// What an export does with them.
class AllocationSink {
 public:
  AllocationSink() = default;
  virtual ~AllocationSink() = default;
  AllocationSink(const AllocationSink&) = delete;
  AllocationSink& operator=(const AllocationSink&) = delete;

  virtual void Served(int64_t time, const Memory& block) = 0;
  virtual void Freed(int64_t time, const Memory& block) = 0;
  virtual void SegmentMade(int64_t time, const Memory& segment) = 0;
  // A segment that was made, or a part of one.
  virtual void SegmentGone(int64_t time, const Memory& segment) = 0;
};

// A taker of entries (page_entries.h).
class AllocationHistory {
 public:
  using Memories = std::map<uint64_t, Memory>;  // by address

  AllocationHistory(Texts& texts, AllocationSink& sink) : texts_(texts), sink_(&sink) {}
  AllocationHistory(const AllocationHistory&) = delete;
  AllocationHistory& operator=(const AllocationHistory&) = delete;

  void BeginChapter(int64_t time, Before before);
  void Take(int64_t, const recording::Text& entry) { texts_.Learn(entry.number, entry.text); }
  void Take(int64_t time, const recording::PoolMade& entry);
  void Take(int64_t time, const recording::PoolGone& entry);
  void Take(int64_t time, const recording::SegmentMade& entry);
  void Take(int64_t time, const recording::SegmentGone& entry);
  void Take(int64_t time, const recording::BlockServed& entry);
  void Take(int64_t time, const recording::BlockFreed& entry);
  void Take(int64_t, const recording::SmallBlocks& entry) { small_served_ += entry.served; }
  void Take(int64_t, const recording::Lost&) { eras_.Lose(); }
  void Finish() { Settle(); }

  // What lives at the end.
  const Memories& segments() const { return segments_; }
  const Memories& blocks() const { return blocks_; }
  // Blocks of threads' caches, which nobody names one by one.
  uint64_t small_served() const { return small_served_; }

 private:
  struct Pool {
    int64_t device = 0;
    SegmentKind kind = SegmentKind::kWhole;
  };

  struct Gap {
    int64_t last = 0;     // the last moment before it
    int64_t chapter = 0;  // when the chapter after it begins
  };

  Pool PoolOf(uint64_t handle) const;
  void Reach(int64_t time);
  // Ends what a chapter after a gap has not retold, and then begins what came in the gap: both may have one address.
  void Settle();
  // Begins memory that is new. After a gap it waits until the chapter has retold all.
  void Meet(Memories& living, const Memory& memory, int64_t time, uint64_t age);
  void Begin(Memories& living, Memory memory, int64_t time);
  void End(Memories& living, Memories::iterator memory, int64_t time);

  ChapterTexts texts_;
  AllocationSink* sink_;
  Eras eras_;
  std::unordered_map<uint64_t, Pool> pools_;  // by handle
  Memories segments_;
  Memories blocks_;
  PoolMembers segments_of_;  // by the pool's handle
  PoolMembers blocks_of_;
  std::optional<Gap> gap_;  // until the chapter after it has retold all
  Memories told_segments_;  // what that chapter has told and nobody knew
  Memories told_blocks_;
  uint64_t next_number_ = 0;
  uint64_t small_served_ = 0;
};

}  // namespace commpool::internal::report

#endif  // COMMPOOL_SRC_REPORT_ALLOCATION_HISTORY_H_
