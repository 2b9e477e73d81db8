// One thread's cache of one lane: freed blocks of small sizes that the same stream may take again at once.
//
// The owner takes and gives without waiting for anybody and without an atomic exchange (base/owner_lock.h), but for the
// one that finds double frees where several threads have caches of the lane. Others may empty or close the cache at any
// time, without the owner's help; while they do, the owner goes to the pool. Bounded in bytes.
#ifndef COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
#define COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

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

// Who may free the same block at the same moment, of those that have caches of its lane.
enum class Freers {
  kOwner,    // this cache is the only one
  kSeveral,  // an atomic exchange tells who was first
};

class alignas(128) ThreadCache {
 public:
  static constexpr uint64_t kMostBytes = 8 << 20;  // 8 blocks of the largest class
  static constexpr size_t kMostBlocks = 4096;      // of one class

  // `broken`: no block is handed out while it is true; it must live until the cache is closed.
  ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken, Freers freers = Freers::kOwner);
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
    if (bin.count == 0 || broken_.load(std::memory_order_relaxed)) {
      lock_.UnlockAsOwner();
      return 0;
    }
    const CachedBlock block = bin.blocks[--bin.count];
    const uint64_t block_bytes = bin.block_bytes;
    ++bin.taken;
    cached_bytes_ -= block_bytes;
    taken_requested_ += requested;
    block.word->store(BlockWord::CacheableWithSlack(lane_, size_class, block_bytes - requested).bits(),
                      std::memory_order_relaxed);
    lock_.UnlockAsOwner();
    return block.address;
  }

  // The owner's. Whether the cache has the block now: not where it is full, closed or busy, or where the word is not
  // `word` any more, for somebody else freed the block; nor where Give has to make room for it.
  [[gnu::always_inline]] bool GiveAtOnce(const CachedBlock& block, BlockWord word) {
    if (!lock_.TryLockAsOwner()) return false;
    Bin& bin = bins_[word.size_class()];
    const uint32_t count = bin.count;
    const uint64_t block_bytes = bin.block_bytes;
    const uint64_t cached_bytes = cached_bytes_ + block_bytes;
    const bool kept = count < bin.room && cached_bytes <= kMostBytes && Exchange(*block.word, word, word.Cached());
    if (kept) {
      bin.blocks[count] = block;
      bin.count = count + 1;
      cached_bytes_ = cached_bytes;
      given_requested_ += block_bytes - word.slack();
    }
    lock_.UnlockAsOwner();
    return kept;
  }
  bool Give(const CachedBlock& block, BlockWord word) {
    return GiveAtOnce(block, word) || (MakeRoom(word.size_class()) && GiveAtOnce(block, word));
  }

  // The owner's, of a live block of the lane that no cache is to have: whether its word was `from`, and is `to` now.
  // Nothing where the cache is closed or busy.
  std::optional<bool> Claim(AtomicWord& word, BlockWord from, BlockWord to);

  // Anybody's; these wait for the owner's short moments.
  ReservedVector<CachedBlock> TakeAll() { return TakeDownTo(0); }
  // Half of what there is, the largest first: what a full cache gives back to its pool.
  ReservedVector<CachedBlock> TakeHalf() { return TakeDownTo(2); }
  // Takes all and refuses everything from now on.
  ReservedVector<CachedBlock> Close();
  bool closed() const { return lock_.closed(); }
  // Before a second thread gets a cache of the lane, and when it has none any more.
  void SetFreers(Freers freers);
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
    std::unique_ptr<CachedBlock[]> blocks;  // an array of `room`, of which `count` are here
    uint32_t count = 0;
    uint32_t room = 0;
    uint64_t taken = 0;        // all-time
    uint64_t block_bytes = 0;  // of the class: computing it costs more than reading it
  };

  // The owner's. Whether there is more room now: not where there was enough, beyond kMostBlocks, where the host has no
  // memory, or where the cache is closed or busy.
  bool MakeRoom(SizeClass size_class);

  // Whether the word was `from`, and is `to` now. REQUIRES: the owner holds the lock.
  bool Exchange(AtomicWord& word, BlockWord from, BlockWord to) const {
    uint64_t bits = from.bits();
    if (freers_ == Freers::kSeveral) [[unlikely]]
      return word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
    if (word.load(std::memory_order_relaxed) != bits) return false;
    word.store(to.bits(), std::memory_order_release);
    return true;
  }

  // What is beyond cached_bytes_ / share, the largest first; everything where share is 0.
  ReservedVector<CachedBlock> TakeDownTo(uint64_t share);
  ReservedVector<CachedBlock> Remove(uint64_t keep_bytes);

  mutable OwnerLock lock_;
  const std::atomic<bool>& broken_;
  const Lane lane_;
  Freers freers_;
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
