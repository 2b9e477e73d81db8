// MemoryObserver: tells the emulator, and a tool that listens to NVTX, when segments and blocks come and go and when
// segments sleep. They then find a program that uses memory which it may not use.
//
// Any thread, several at once, without a lock. Neither calls the library.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <string>

#include "src/library/backing/backing.h"
#include "src/library/driver/loader.h"
#include "src/library/engine/types.h"
#include "src/library/nvtx/heaps.h"
#include "src/library/stream/stream_key.h"
#include "src/library/stream/stream_places.h"

namespace commpool::internal {

// RuntimeParts owns one, which never changes. Pools and ThreadCaches call it. It owns nothing. Each call is an empty
// one, or one check, where nobody listens.
class MemoryObserver {
 public:
  // Nobody listens.
  MemoryObserver() = default;
  // All three outlive it.
  MemoryObserver(const Driver& driver, const StreamPlaces& places, nvtx::Heaps& heaps);

  // Whether somebody wants to hear of every block. Then each block must take the slow path through the caches, which
  // reports it.
  bool watches_blocks() const { return watches_blocks_; }

  // Whether a tool takes segments of such memory as its heaps. compute-sanitizer takes what cudaMalloc made alone: any
  // other heap is an error in its report.
  bool TakesHeapsOf(const Backing& backing) const { return heaps_ != nullptr && backing.IsOfCudaMalloc(); }
  // For segments of such memory. Call it before the first block of the segment, and once the last one is gone.
  void SegmentMade(const engine::SegmentRange& segment, const std::shared_ptr<const nvtx::Domain>& pool) const {
    if (heaps_ != nullptr) heaps_->Made(pool, segment.address, segment.bytes);
  }
  void SegmentGone(CUdeviceptr address) const {
    if (heaps_ != nullptr) heaps_->Gone(address);
  }
  // A segment loses its physical memory, or gets it back. Call it before the memory goes, and once it is back.
  void SegmentSleeps(const engine::SegmentRange& segment, bool asleep) const {
    if (segment_sleeps_ != nullptr) segment_sleeps_(segment.address, segment.bytes, asleep ? 1 : 0);
  }
  // Call it before the program gets the block.
  void BlockAllocated(const engine::SegmentRange& block, uint64_t requested, StreamKey stream,
                      const std::string& pool) const {
    if (watches_blocks_) TellAllocated(block, requested, stream, pool);
  }
  // Call it before the free takes effect: another thread may get the block at once.
  void BlockFreed(CUdeviceptr address) const {
    if (watches_blocks_) TellFreed(address);
  }
  // A capture begins with a pool, or has ended.
  void CaptureAnnounced(CUstream stream, bool open) const {
    if (capture_announced_ != nullptr) capture_announced_(stream, open ? 1 : 0);
  }

 private:
  // Apart, so that the usual case is inlined as one check.
  void TellAllocated(const engine::SegmentRange& block, uint64_t requested, StreamKey stream,
                     const std::string& pool) const;
  void TellFreed(CUdeviceptr address) const;

  const Driver* driver_ = nullptr;
  const StreamPlaces* places_ = nullptr;
  nvtx::Heaps* heaps_ = nullptr;  // null where no tool takes them
  // The emulator's functions (src/emulator/extension.h). All null with a real driver, some with an older emulator.
  void (*segment_sleeps_)(CUdeviceptr address, size_t bytes, int asleep) = nullptr;
  // Null too where the emulator does not watch blocks.
  void (*block_allocated_)(CUdeviceptr address, size_t bytes, CUstream stream, const char* pool) = nullptr;
  void (*block_freed_)(CUdeviceptr address) = nullptr;
  void (*capture_announced_)(CUstream stream, int announced) = nullptr;
  bool watches_blocks_ = false;
};

// Prints a line of the log where COMMPOOL_LOG=debug asks for it. `verb`: "makes" or "gives back".
void LogSegment(const engine::SegmentRange& segment, const std::string& pool, const char* verb);

}  // namespace commpool::internal
