// Hears of segments and blocks as they come and go: the emulator, which judges how a program uses them, and the log.
//
// Any thread, several at once, no lock held. An observer calls nothing of the library.
#ifndef COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
#define COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_

#include <cuda.h>

#include <string>

#include "src/driver/loader.h"
#include "src/emulator/extension.h"
#include "src/engine/types.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class MemoryObserver {
 public:
  // Without an emulator, as with a real driver.
  MemoryObserver() = default;
  explicit MemoryObserver(const Driver& driver);

  // Whether the emulator wants to hear of blocks: then nothing is served by the threads' caches unseen, which costs
  // time.
  bool watches_blocks() const { return watches_blocks_; }

  // A line of the log each, where COMMPOOL_LOG=debug asks for it.
  void SegmentAdded(const engine::SegmentRange& segment, const std::string& pool) const;
  void SegmentRemoved(const engine::SegmentRange& segment, const std::string& pool) const;

  // The rest is the emulator's. A segment's physical memory goes, or has come back.
  void SegmentSleeps(const engine::SegmentRange& segment, bool asleep) const {
    if (segment_sleeps_ != nullptr) segment_sleeps_(segment.address, segment.bytes, asleep ? 1 : 0);
  }
  void BlockAllocated(const engine::SegmentRange& block, StreamKey stream, const std::string& pool) const {
    if (!watches_blocks_ || !IsReachable(stream)) return;
    block_allocated_(block.address, block.bytes, StreamOfKey(stream), pool.c_str());
  }
  // Told before it is true: another thread may be served the block at once.
  void BlockFreed(CUdeviceptr address) const {
    if (watches_blocks_) block_freed_(address);
  }
  // A capture begins with a pool, or has ended.
  void CaptureAnnounced(CUstream stream, bool open) const {
    if (capture_announced_ != nullptr) capture_announced_(stream, open ? 1 : 0);
  }

 private:
  // The emulator's functions for this; null with a real driver, and some with an older emulator.
  decltype(&commpoolEmulatorSegmentSleeps) segment_sleeps_ = nullptr;
  decltype(&commpoolEmulatorBlockAllocated) block_allocated_ = nullptr;
  decltype(&commpoolEmulatorBlockFreed) block_freed_ = nullptr;
  decltype(&commpoolEmulatorCaptureAnnounced) capture_announced_ = nullptr;
  bool watches_blocks_ = false;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_MEMORY_OBSERVER_H_
