// MemoryObserver: finds out once who listens, and passes the news on.
#include "src/library/pool/shared/memory_observer.h"

#include <cstring>
#include <optional>

#include "src/library/base/bytes.h"
#include "src/library/base/log.h"

namespace commpool::internal {

namespace {

template <typename Function>
void Find(const Driver& driver, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(driver.extension(name));
}

}  // namespace

// A real driver has none of these functions: they stay null, and no emulator is told.
MemoryObserver::MemoryObserver(const Driver& driver, const StreamPlaces& places, nvtx::Heaps& heaps)
    : driver_(&driver), places_(&places), heaps_(heaps.taken() ? &heaps : nullptr) {
  Find(driver, "commpoolEmulatorSegmentSleeps", segment_sleeps_);
  Find(driver, "commpoolEmulatorBlockAllocated", block_allocated_);
  Find(driver, "commpoolEmulatorBlockFreed", block_freed_);
  Find(driver, "commpoolEmulatorCaptureAnnounced", capture_announced_);
  const char* (*setting)(const char* key) = nullptr;
  Find(driver, "commpoolEmulatorSetting", setting);
  const char* const races = setting == nullptr ? nullptr : setting("races");
  const bool follows = races != nullptr && std::strcmp(races, "yes") == 0 && block_freed_ != nullptr;
  if (!follows) block_allocated_ = nullptr;
  watches_blocks_ = block_allocated_ != nullptr || heaps_ != nullptr;
}

// The emulator follows streams by their handles, a tool does not.
void MemoryObserver::TellAllocated(const engine::SegmentRange& block, uint64_t requested, StreamKey stream,
                                   const std::string& pool) const {
  if (block_allocated_ != nullptr && (stream == kNoStream || IsReachable(stream))) {
    const CUstream handle = stream == kNoStream ? reinterpret_cast<CUstream>(kNoStream) : StreamOfKey(stream);
    std::optional<ContextGuard> current;
    if (IsDefault(handle)) current.emplace(*driver_, places_->At(PlaceOf(stream)).context);
    block_allocated_(block.address, block.bytes, handle, pool.c_str());
  }
  if (heaps_ != nullptr) heaps_->Served(block.address, requested);
}

// By the address alone: both know the block.
void MemoryObserver::TellFreed(CUdeviceptr address) const {
  if (block_allocated_ != nullptr) block_freed_(address);
  if (heaps_ != nullptr) heaps_->Freed(address);
}

void LogSegment(const engine::SegmentRange& segment, const std::string& pool, const char* verb) {
  if (!LogEnabled(LogLevel::kDebug)) return;
  Log(LogLevel::kDebug, "pool " + pool + " " + verb + " a segment of " + FormatBytes(segment.bytes) + " at " +
                            engine::Hexadecimal(segment.address));
}

}  // namespace commpool::internal
