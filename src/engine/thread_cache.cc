#include "src/engine/thread_cache.h"

namespace commpool::internal::engine {

void CacheStatistics::operator+=(const CacheStatistics& other) {
  cached_bytes += other.cached_bytes;
  cached_blocks += other.cached_blocks;
  taken_blocks += other.taken_blocks;
  taken_bytes += other.taken_bytes;
  taken_requested += other.taken_requested;
  given_requested += other.given_requested;
  left_bytes += other.left_bytes;
  left_blocks += other.left_blocks;
}

ThreadCache::ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken)
    : broken_(broken), lane_(lane), alignment_(alignment) {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    bins_[size_class].block_bytes = ClassBytes(size_class);
  }
}

ReservedVector<CachedBlock> ThreadCache::Remove(uint64_t keep_bytes) {
  ReservedVector<CachedBlock> removed;
  for (SizeClass size_class = kSizeClasses; size_class-- > 0 && cached_bytes_ > keep_bytes;) {
    ReservedVector<CachedBlock>& bin = bins_[size_class].blocks;
    const uint64_t bytes = ClassBytes(size_class);
    while (!bin.empty() && cached_bytes_ > keep_bytes) {
      removed.push_back(bin.back());
      bin.pop_back();
      cached_bytes_ -= bytes;
      left_bytes_ += bytes;
    }
  }
  left_blocks_ += removed.size();
  return removed;
}

ReservedVector<CachedBlock> ThreadCache::TakeDownTo(uint64_t share) {
  if (!lock_.Lock()) return {};
  ReservedVector<CachedBlock> removed = Remove(share == 0 ? 0 : cached_bytes_ / share);
  lock_.Unlock();
  return removed;
}

ReservedVector<CachedBlock> ThreadCache::Close() {
  if (!lock_.Lock()) return {};
  ReservedVector<CachedBlock> removed = Remove(0);
  lock_.Close();
  return removed;
}

CacheStatistics ThreadCache::Pause::Statistics() const {
  CacheStatistics figures;
  figures.cached_bytes = cache_->cached_bytes_;
  figures.taken_requested = cache_->taken_requested_;
  figures.given_requested = cache_->given_requested_;
  figures.left_bytes = cache_->left_bytes_;
  figures.left_blocks = cache_->left_blocks_;
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    const Bin& bin = cache_->bins_[size_class];
    figures.cached_blocks += bin.blocks.size();
    figures.taken_blocks += bin.taken;
    figures.taken_bytes += bin.taken * ClassBytes(size_class);
  }
  return figures;
}

}  // namespace commpool::internal::engine
