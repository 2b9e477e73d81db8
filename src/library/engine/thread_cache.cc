#include "src/library/engine/thread_cache.h"

#include <algorithm>
#include <new>

namespace commpool::internal::engine {

ThreadCache::ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken, Freers freers)
    : broken_(broken), lane_(lane), freers_(freers), alignment_(alignment) {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    bins_[size_class].live = BlockWord::Cacheable(lane, size_class, ClassBytes(size_class));
    bins_[size_class].block_bytes = static_cast<uint32_t>(ClassBytes(size_class));
  }
}

bool ThreadCache::MakeRoom(SizeClass size_class) {
  constexpr size_t kLeastRoom = 16;
  if (!lock_.TryLockAsOwner()) return false;
  Bin& bin = bins_[size_class];
  const size_t room = std::max(2 * size_t{bin.room}, kLeastRoom);
  std::unique_ptr<CachedBlock[]> blocks;
  if (bin.count == bin.room && room <= kMostBlocks) blocks.reset(new (std::nothrow) CachedBlock[room]);
  const bool made = blocks != nullptr;
  if (made) {
    std::copy_n(bin.blocks.get(), bin.count, blocks.get());
    bin.blocks.swap(blocks);
    bin.room = static_cast<uint16_t>(room);
  }
  lock_.UnlockAsOwner();
  return made;
}

std::optional<bool> ThreadCache::TryChange(AtomicWord& word, BlockWord from, BlockWord to) {
  if (!lock_.TryLockAsOwner()) return std::nullopt;
  const bool changed = Exchange(word, from, to);
  lock_.UnlockAsOwner();
  return changed;
}

void ThreadCache::SetFreers(Freers freers) {
  if (!lock_.Lock()) return;
  freers_ = freers;
  lock_.Unlock();
}

std::vector<CachedBlock> ThreadCache::Remove(int64_t keep_bytes) {
  std::vector<CachedBlock> removed;
  for (SizeClass size_class = kSizeClasses; size_class-- > 0;) {
    Bin& bin = bins_[size_class];
    while (bin.count > 0 && cached_.bytes > keep_bytes) {
      const CachedBlock& block = bin.blocks[--bin.count];
      const Tally tally = TallyOf(BlockWord(block.word->load(std::memory_order_relaxed)));
      cached_ -= tally;
      least_ -= tally;
      left_ += tally;
      removed.push_back(block);
    }
  }
  return removed;
}

std::vector<CachedBlock> ThreadCache::TakeDownTo(int64_t share) {
  if (!lock_.Lock()) return {};
  std::vector<CachedBlock> removed = Remove(share == 0 ? 0 : cached_.bytes / share);
  lock_.Unlock();
  return removed;
}

std::optional<ReturnedBlocks> ThreadCache::Close() {
  if (!lock_.Lock()) return std::nullopt;
  ReturnedBlocks returned{Remove(0), {}, std::exchange(cached_.requested, 0)};
  least_ = cached_;
  lock_.Close();
  return returned;
}

void ThreadCache::Pause::AddTo(ClassCounts& counts) const {
  for (SizeClass size_class = 0; size_class < kSizeClasses; ++size_class) {
    counts.taken[size_class] += cache_->bins_[size_class].taken;
    counts.cached[size_class] += cache_->bins_[size_class].count;
  }
}

CacheStatistics ThreadCache::Pause::Statistics() const {
  CacheStatistics statistics{{cache_->least_, cache_->cached_}, {}, cache_->left_};
  statistics.taken.requested = static_cast<int64_t>(cache_->taken_requested_);
  for (const Bin& bin : cache_->bins_) {
    statistics.taken.blocks += static_cast<int64_t>(bin.taken);
    statistics.taken.bytes += static_cast<int64_t>(bin.taken * bin.block_bytes);
  }
  return statistics;
}

}  // namespace commpool::internal::engine
