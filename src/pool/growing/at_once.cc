// The short way of large blocks, and of small ones that no cache has, through a growing pool, where nothing about the
// pool or the block is unusual: one hold of the pool's lock, and no driver call. Whatever is unusual is left to the
// long way, untouched.
#include "src/pool/growing/growing_mode.h"

namespace commpool::internal {

bool GrowingMode::MayServeAtOnce() const {
  return basis_.configuration.release_threshold_bytes == UINT64_MAX && !captures_.any_known() && basis_.life.open() &&
         !basis_.device->health().broken();
}

CUdeviceptr GrowingMode::AllocateAtOnce(uint64_t bytes, StreamKey stream) {
  if (!MayServeAtOnce()) return 0;
  engine::SegmentRange block;
  {
    MutexLock lock(blocks_.mutex());
    block = engine().AllocateAtOnce(bytes, stream);
  }
  if (block.bytes != 0) blocks_.Announce(block, bytes, stream, Caching::kYes);
  return block.address;
}

bool GrowingMode::FreeAtOnce(CUdeviceptr address) {
  // An observer hears of a free before it is true, so not where the free may yet have to take the long way.
  if (!MayServeAtOnce() || basis_.runtime.observers.watching_blocks()) return false;
  {
    MutexLock lock(blocks_.mutex());
    if (!engine().FreeAtOnce(address)) return false;
    basis_.runtime.caches.Forget(address);  // before somebody else is served the block
  }
  if (basis_.life.destroyed()) AfterFree();  // since this free began: nobody comes again for the memory
  return true;
}

}  // namespace commpool::internal
