// The short way of large blocks, and of small ones that no cache has, through a growing pool, where nothing about the
// pool or the block is unusual: one hold of the pool's lock, and no driver call. Whatever is unusual is left to the
// long way, untouched.
#include "src/pool/growing/growing_mode.h"

namespace commpool::internal {

bool GrowingMode::MayServeAtOnce() const {
  return parts_.basis.configuration.release_threshold_bytes == UINT64_MAX && !parts_.captures.any_known() &&
         parts_.life.open() && !parts_.basis.device->health().broken();
}

CUdeviceptr GrowingMode::AllocateAtOnce(uint64_t bytes, StreamKey stream) {
  if (!MayServeAtOnce()) return 0;
  engine::SegmentRange block;
  {
    MutexLock lock(parts_.blocks.mutex());
    block = engine_->AllocateAtOnce(bytes, stream);
  }
  if (block.bytes != 0) parts_.blocks.Announce(block, bytes, stream, Caching::kYes);
  return block.address;
}

bool GrowingMode::FreeAtOnce(CUdeviceptr address) {
  // An observer hears of a free before it is true, so not where the free may yet have to take the long way.
  if (!MayServeAtOnce() || parts_.basis.runtime.observers.watching_blocks()) return false;
  {
    MutexLock lock(parts_.blocks.mutex());
    if (!engine_->FreeAtOnce(address)) return false;
    parts_.basis.runtime.caches.Forget(address);  // before somebody else is served the block
  }
  if (parts_.life.destroyed()) AfterFree();  // since this free began: nobody comes again for the memory
  return true;
}

}  // namespace commpool::internal
