// MemoryObserver: tells the emulator when blocks come and go, and when segments sleep. The emulator then finds a
// program that uses memory which it may not use.
//
// Any thread, several at once, without a lock. It never calls the library.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_

#include <cuda.h>

#include <string>

#include "src/driver/loader.h"
#include "src/emulator/extension.h"
#include "src/engine/types.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

// RuntimeParts owns one, which never changes. Pools and ThreadCaches call it.
class MemoryObserver {
 public:
  // For a real driver: no emulator listens.
  MemoryObserver() = default;
  explicit MemoryObserver(const Driver& driver);

  // Whether the emulator wants to hear of every block. Then each block must take the slow path through the caches,
  // which reports it.
  bool watches_blocks() const { return watches_blocks_; }

  // A segment loses its physical memory, or gets it back.
  void SegmentSleeps(const engine::SegmentRange& segment, bool asleep) const {
    if (segment_sleeps_ != nullptr) segment_sleeps_(segment.address, segment.bytes, asleep ? 1 : 0);
  }
  void BlockAllocated(const engine::SegmentRange& block, StreamKey stream, const std::string& pool) const {
    if (!watches_blocks_ || !IsReachable(stream)) return;
    block_allocated_(block.address, block.bytes, StreamOfKey(stream), pool.c_str());
  }
  // Call it before the free takes effect: another thread may get the block at once.
  void BlockFreed(CUdeviceptr address) const {
    if (watches_blocks_) block_freed_(address);
  }
  // A capture begins with a pool, or has ended.
  void CaptureAnnounced(CUstream stream, bool open) const {
    if (capture_announced_ != nullptr) capture_announced_(stream, open ? 1 : 0);
  }

 private:
  // The emulator's functions. All null with a real driver, some with an older emulator.
  decltype(&commpoolEmulatorSegmentSleeps) segment_sleeps_ = nullptr;
  decltype(&commpoolEmulatorBlockAllocated) block_allocated_ = nullptr;
  decltype(&commpoolEmulatorBlockFreed) block_freed_ = nullptr;
  decltype(&commpoolEmulatorCaptureAnnounced) capture_announced_ = nullptr;
  bool watches_blocks_ = false;
};

// Prints a line of the log where COMMPOOL_LOG=debug asks for it. `verb`: "makes" or "gives back".
void LogSegment(const engine::SegmentRange& segment, const std::string& pool, const char* verb);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
