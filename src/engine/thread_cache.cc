#include "src/engine/thread_cache.h"

#include <algorithm>
#include <new>

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

ThreadCache::ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken, Freers freers)
    : broken_(broken), lane_(lane), freers_(freers), alignment_(alignment) {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    bins_[size_class].block_bytes = ClassBytes(size_class);
  }
}

bool ThreadCache::MakeRoom(SizeClass size_class) {
  constexpr uint32_t kLeastRoom = 16;
  if (!lock_.TryLockAsOwner()) return false;
  Bin& bin = bins_[size_class];
  const uint32_t room = std::max(2 * bin.room, kLeastRoom);
  std::unique_ptr<CachedBlock[]> blocks;
  if (bin.count == bin.room && room <= kMostBlocks) blocks.reset(new (std::nothrow) CachedBlock[room]);
  const bool made = blocks != nullptr;
  if (made) {
    std::copy_n(bin.blocks.get(), bin.count, blocks.get());
    bin.blocks.swap(blocks);
    bin.room = room;
  }
  lock_.UnlockAsOwner();
  return made;
}

std::optional<bool> ThreadCache::Claim(AtomicWord& word, BlockWord from, BlockWord to) {
  if (!lock_.TryLockAsOwner()) return std::nullopt;
  const bool claimed = Exchange(word, from, to);
  lock_.UnlockAsOwner();
  return claimed;
}

void ThreadCache::SetFreers(Freers freers) {
  if (!lock_.Lock()) return;
  freers_ = freers;
  lock_.Unlock();
}

ReservedVector<CachedBlock> ThreadCache::Remove(uint64_t keep_bytes) {
  ReservedVector<CachedBlock> removed;
  for (SizeClass size_class = kSizeClasses; size_class-- > 0;) {
    Bin& bin = bins_[size_class];
    while (bin.count > 0 && cached_bytes_ > keep_bytes) {
      removed.push_back(bin.blocks[bin.count - 1]);
      --bin.count;
      cached_bytes_ -= bin.block_bytes;
      left_bytes_ += bin.block_bytes;
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
    figures.cached_blocks += bin.count;
    figures.taken_blocks += bin.taken;
    figures.taken_bytes += bin.taken * ClassBytes(size_class);
  }
  return figures;
}

}  // namespace commpool::internal::engine
