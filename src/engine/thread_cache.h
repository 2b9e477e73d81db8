// One thread's cache of one lane: freed blocks of small sizes that the same stream may take again at once.
//
// The owner takes and gives without waiting for anybody: the price is one uncontended atomic each. Others may empty or
// close the cache at any time, without the owner's help; while they do, the owner goes to the pool. Bounded in bytes.
#ifndef COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
#define COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "src/engine/block_word.h"
#include "src/engine/types.h"

namespace commpool::engine {

// A block on its way between a cache and its pool.
struct CachedBlock {
  Address address = 0;
  AtomicWord* word = nullptr;
};

// What went through a cache since it was made: added to the pool's own figures when they are read.
struct CacheFigures {
  uint64_t cached_bytes = 0;
  uint64_t cached_blocks = 0;
  uint64_t taken_blocks = 0;     // all-time
  uint64_t taken_bytes = 0;      // all-time
  uint64_t taken_requested = 0;  // all-time, as asked for
  uint64_t given_requested = 0;  // all-time, as was asked for

  void operator+=(const CacheFigures& other);
};

class alignas(64) ThreadCache {
 public:
  static constexpr uint64_t kMostBytes = 8 << 20;  // 8 blocks of the largest class
  static constexpr size_t kMostBlocks = 4096;      // of one class

  // `broken`: no block is handed out while it is true; it must live until the cache is closed.
  ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken)
      : broken_(broken), lane_(lane), alignment_(alignment) {}
  ThreadCache(const ThreadCache&) = delete;
  ThreadCache& operator=(const ThreadCache&) = delete;

  Lane lane() const { return lane_; }

  // The owner's. A block for the request, live again; 0 where there is none, or another thread is at the cache.
  // REQUIRES: 0 < requested <= kSmallBytes.
  Address Take(uint64_t requested) {
    const SizeClass size_class = ClassOf((requested + alignment_ - 1) & ~(alignment_ - 1));
    if (size_class >= kSizeClasses || !TryLock()) return 0;
    std::vector<CachedBlock>& bin = bins_[size_class];
    if (bin.empty() || broken_.load(std::memory_order_relaxed)) {
      Unlock();
      return 0;
    }
    const CachedBlock block = bin.back();
    bin.pop_back();
    const uint64_t bytes = ClassBytes(size_class);
    figures_.cached_bytes -= bytes;
    --figures_.cached_blocks;
    ++figures_.taken_blocks;
    figures_.taken_bytes += bytes;
    figures_.taken_requested += requested;
    block.word->store(BlockWord::Cacheable(lane_, size_class, requested).bits(), std::memory_order_relaxed);
    Unlock();
    return block.address;
  }

  // The owner's. Whether the cache has the block now: not where it is full, closed or busy, or where the word is not
  // `word` any more, for somebody else freed the block.
  bool Give(const CachedBlock& block, BlockWord word) {
    if (!TryLock()) return false;
    const uint64_t bytes = ClassBytes(word.size_class());
    std::vector<CachedBlock>& bin = bins_[word.size_class()];
    uint64_t expected = word.bits();
    const bool kept = figures_.cached_bytes + bytes <= kMostBytes && bin.size() < kMostBlocks &&
                      block.word->compare_exchange_strong(expected, word.Cached().bits(), std::memory_order_relaxed);
    if (kept) {
      bin.push_back(block);
      figures_.cached_bytes += bytes;
      ++figures_.cached_blocks;
      figures_.given_requested += word.requested();
    }
    Unlock();
    return kept;
  }

  // Anybody's; these wait for the owner's short moments.
  std::vector<CachedBlock> TakeAll();
  // Half of what there is, the largest first: what a full cache gives back to its pool.
  std::vector<CachedBlock> TakeHalf();
  // Takes all and refuses everything from now on.
  std::vector<CachedBlock> Close();
  bool closed() const { return state_.load(std::memory_order_acquire) == kClosed; }
  CacheFigures Figures() const;

 private:
  static constexpr uint32_t kOpen = 0;
  static constexpr uint32_t kBusy = 1;
  static constexpr uint32_t kClosed = 2;

  bool TryLock() const {
    uint32_t expected = kOpen;
    return state_.compare_exchange_strong(expected, kBusy, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void Unlock() const { state_.store(kOpen, std::memory_order_release); }
  // Returns what to unlock to: a closed cache can still be looked at.
  uint32_t Lock() const;
  void Unlock(uint32_t state) const { state_.store(state, std::memory_order_release); }
  std::vector<CachedBlock> Remove(uint64_t keep_bytes);

  mutable std::atomic<uint32_t> state_{kOpen};
  const std::atomic<bool>& broken_;
  const Lane lane_;
  const uint64_t alignment_;
  CacheFigures figures_;
  std::array<std::vector<CachedBlock>, kSizeClasses> bins_;
};

}  // namespace commpool::engine

#endif  // COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
