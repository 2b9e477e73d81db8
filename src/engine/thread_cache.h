// One thread's cache of one lane: freed blocks of small sizes that the same stream may take again at once.
//
// The owner takes and gives without waiting for anybody, and without an atomic exchange but the one that finds double
// frees (base/owner_lock.h). Others may empty or close the cache at any time, without the owner's help; while they do,
// the owner goes to the pool. Bounded in bytes.
#ifndef COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
#define COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/base/owner_lock.h"
#include "src/engine/block_word.h"
#include "src/engine/types.h"

namespace commpool::internal::engine {

// A block on its way between a cache and its pool.
struct CachedBlock {
  Address address = 0;
  AtomicWord* word = nullptr;
};

// What went through a cache since it was made: added to the pool's own figures when they are read.
struct CacheStatistics {
  uint64_t cached_bytes = 0;
  uint64_t cached_blocks = 0;
  uint64_t taken_blocks = 0;     // all-time
  uint64_t taken_bytes = 0;      // all-time
  uint64_t taken_requested = 0;  // all-time, as asked for
  uint64_t given_requested = 0;  // all-time, as was asked for
  uint64_t left_bytes = 0;       // all-time, taken out to go back to the pool
  uint64_t left_blocks = 0;      // all-time, likewise

  void operator+=(const CacheStatistics& other);
};

class alignas(128) ThreadCache {
 public:
  static constexpr uint64_t kMostBytes = 8 << 20;  // 8 blocks of the largest class
  static constexpr size_t kMostBlocks = 4096;      // of one class

  // `broken`: no block is handed out while it is true; it must live until the cache is closed.
  ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken);
  ThreadCache(const ThreadCache&) = delete;
  ThreadCache& operator=(const ThreadCache&) = delete;

  Lane lane() const { return lane_; }

  // Both halves of the fast path are inlined: a call would be a tenth of a pair.
  //
  // The owner's. A block for the request, live again; 0 where there is none, or another thread is at the cache.
  // REQUIRES: 0 < requested <= kSmallBytes.
  [[gnu::always_inline]] Address Take(uint64_t requested) {
    const SizeClass size_class = ClassOf((requested + alignment_ - 1) & ~(alignment_ - 1));
    if (size_class >= kSizeClasses || !lock_.TryLockAsOwner()) return 0;
    Bin& bin = bins_[size_class];
    if (bin.blocks.empty() || broken_.load(std::memory_order_relaxed)) {
      lock_.UnlockAsOwner();
      return 0;
    }
    const CachedBlock block = bin.blocks.back();
    bin.blocks.pop_back();
    ++bin.taken;
    cached_bytes_ -= bin.block_bytes;
    taken_requested_ += requested;
    block.word->store(BlockWord::CacheableWithSlack(lane_, size_class, bin.block_bytes - requested).bits(),
                      std::memory_order_relaxed);
    lock_.UnlockAsOwner();
    return block.address;
  }

  // The owner's. Whether the cache has the block now: not where it is full, closed or busy, or where the word is not
  // `word` any more, for somebody else freed the block.
  [[gnu::always_inline]] bool Give(const CachedBlock& block, BlockWord word) {
    if (!lock_.TryLockAsOwner()) return false;
    Bin& bin = bins_[word.size_class()];
    uint64_t expected = word.bits();
    const bool kept = cached_bytes_ + bin.block_bytes <= kMostBytes && bin.blocks.size() < kMostBlocks &&
                      block.word->compare_exchange_strong(expected, word.Cached().bits(), std::memory_order_relaxed);
    if (kept) {
      bin.blocks.push_back(block);
      cached_bytes_ += bin.block_bytes;
      given_requested_ += bin.block_bytes - word.slack();
    }
    lock_.UnlockAsOwner();
    return kept;
  }

  // Anybody's; these wait for the owner's short moments.
  ReservedVector<CachedBlock> TakeAll() { return TakeDownTo(0); }
  // Half of what there is, the largest first: what a full cache gives back to its pool.
  ReservedVector<CachedBlock> TakeHalf() { return TakeDownTo(2); }
  // Takes all and refuses everything from now on.
  ReservedVector<CachedBlock> Close();
  bool closed() const { return lock_.closed(); }
  CacheStatistics Statistics() const { return Pause(*this).Statistics(); }

  // While it lives, nothing enters or leaves the cache: the owner goes to the pool.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(const ThreadCache& cache) : cache_(&cache), open_(cache.lock_.Lock()) {}
    Pause(Pause&& other) noexcept : cache_(other.cache_), open_(std::exchange(other.open_, false)) {}
    Pause& operator=(Pause&&) = delete;
    ~Pause() {
      if (open_) cache_->lock_.Unlock();
    }

    CacheStatistics Statistics() const;

   private:
    const ThreadCache* const cache_;
    bool open_;  // not for a closed cache, which stands still for ever
  };

 private:
  // The blocks of one size class: the last that came goes first.
  struct Bin {
    ReservedVector<CachedBlock> blocks;
    uint64_t taken = 0;        // all-time
    uint64_t block_bytes = 0;  // of the class: computing it costs more than reading it
  };

  // What is beyond cached_bytes_ / share, the largest first; everything where share is 0.
  ReservedVector<CachedBlock> TakeDownTo(uint64_t share);
  ReservedVector<CachedBlock> Remove(uint64_t keep_bytes);

  mutable OwnerLock lock_;
  const std::atomic<bool>& broken_;
  const Lane lane_;
  const uint64_t alignment_;
  uint64_t cached_bytes_ = 0;
  uint64_t taken_requested_ = 0;
  uint64_t given_requested_ = 0;
  uint64_t left_bytes_ = 0;
  uint64_t left_blocks_ = 0;
  std::array<Bin, kSizeClasses> bins_;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
