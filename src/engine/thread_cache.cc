#include "src/engine/thread_cache.h"

#include <thread>

namespace commpool::engine {

void CacheFigures::operator+=(const CacheFigures& other) {
  cached_bytes += other.cached_bytes;
  cached_blocks += other.cached_blocks;
  taken_blocks += other.taken_blocks;
  taken_bytes += other.taken_bytes;
  taken_requested += other.taken_requested;
  given_requested += other.given_requested;
}

uint32_t ThreadCache::Lock() const {
  // Two may look at a closed cache together: it is empty and does not change any more.
  while (!TryLock()) {
    if (closed()) return kClosed;
    std::this_thread::yield();
  }
  return kOpen;
}

std::vector<CachedBlock> ThreadCache::Remove(uint64_t keep_bytes) {
  std::vector<CachedBlock> removed;
  for (SizeClass size_class = kSizeClasses; size_class-- > 0 && figures_.cached_bytes > keep_bytes;) {
    std::vector<CachedBlock>& bin = bins_[size_class];
    const uint64_t bytes = ClassBytes(size_class);
    while (!bin.empty() && figures_.cached_bytes > keep_bytes) {
      removed.push_back(bin.back());
      bin.pop_back();
      figures_.cached_bytes -= bytes;
      --figures_.cached_blocks;
    }
  }
  return removed;
}

std::vector<CachedBlock> ThreadCache::TakeAll() {
  if (Lock() == kClosed) return {};
  std::vector<CachedBlock> removed = Remove(0);
  Unlock();
  return removed;
}

std::vector<CachedBlock> ThreadCache::TakeHalf() {
  if (Lock() == kClosed) return {};
  std::vector<CachedBlock> removed = Remove(figures_.cached_bytes / 2);
  Unlock();
  return removed;
}

std::vector<CachedBlock> ThreadCache::Close() {
  if (Lock() == kClosed) return {};
  std::vector<CachedBlock> removed = Remove(0);
  Unlock(kClosed);
  return removed;
}

CacheFigures ThreadCache::Figures() const {
  const uint32_t state = Lock();
  const CacheFigures figures = figures_;
  Unlock(state);
  return figures;
}

}  // namespace commpool::engine
