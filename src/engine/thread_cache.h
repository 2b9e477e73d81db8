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

// Of a small block that was asked for as its word says.
inline Tally TallyOf(BlockWord word) {
  return {static_cast<int64_t>(word.requested()), static_cast<int64_t>(ClassBytes(word.size_class())), 1};
}

// Blocks on their way to their pool.
struct ReturnedBlocks {
  ReservedVector<CachedBlock> blocks;
  // Of what they leave, what the caches of the thread that takes them out had held at least.
  Tally held;
  // Of a cache that has ended: what was asked for its blocks when they came, less what was when they went.
  int64_t requested_more = 0;
};

// What a cache holds, and what went through it since it was made: added to the pool's own figures when they are read.
struct CacheStatistics {
  Holding holding;
  Tally taken;  // all-time
  Tally left;   // all-time, taken out to go back to the pool

  void operator+=(const CacheStatistics& other) {
    holding += other.holding;
    taken += other.taken;
    left += other.left;
  }
};

// Who else may free the same block at the same moment: threads that have caches of its lane.
enum class Freers {
  kOwner,    // this cache is the only one
  kSeveral,  // an atomic exchange tells who was first
};

class alignas(128) ThreadCache {
 public:
  static constexpr int64_t kMostBytes = 8 << 20;  // 8 blocks of the largest class
  static constexpr size_t kMostBlocks = 4096;     // of one class

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
    const int64_t block_bytes = bin.block_bytes;
    ++bin.taken;
    taken_requested_ += requested;
    cached_ -= Tally{static_cast<int64_t>(requested), block_bytes, 1};
    least_.LowerTo(cached_);
    block.word->store(bin.live.WithSlack(static_cast<uint64_t>(block_bytes) - requested).bits(),
                      std::memory_order_relaxed);
    lock_.UnlockAsOwner();
    return block.address;
  }

  // The owner's. Whether the cache has the block now: not where it is full, closed or busy, or where the word is not
  // `word` any more, for somebody else freed the block; nor where Give has to make room for it.
  [[gnu::always_inline]] bool GiveAtOnce(const CachedBlock& block, BlockWord word) {
    if (!lock_.TryLockAsOwner()) return false;
    Bin& bin = bins_[word.size_class()];
    const uint16_t count = bin.count;
    const int64_t block_bytes = bin.block_bytes;
    const bool room = count < bin.room && cached_.bytes + block_bytes <= kMostBytes;
    const bool kept = room && Exchange(*block.word, word, word.Cached());
    if (kept) {
      bin.blocks[count] = block;
      bin.count = static_cast<uint16_t>(count + 1);
      cached_ += Tally{block_bytes - static_cast<int64_t>(word.slack()), block_bytes, 1};
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
  // Takes all and refuses everything from now on. Null where somebody has before.
  std::optional<ReturnedBlocks> Close();
  bool closed() const { return lock_.closed(); }
  // Before a second thread gets a cache of the lane, and when it has none any more.
  void SetFreers(Freers freers);
  CacheStatistics Statistics() { return Pause(*this).Statistics(); }

  // The owner's. What it holds, as the owner's pool is about to change; nothing while another thread is at the cache.
  Holding Look() {
    if (!lock_.TryLockAsOwner()) return {};
    const Holding holding{least_, cached_};
    least_ = cached_;
    lock_.UnlockAsOwner();
    return holding;
  }

  // While it lives, nothing enters or leaves the cache: the owner goes to the pool.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(ThreadCache& cache) : cache_(&cache), open_(cache.lock_.Lock()) {}
    Pause(Pause&& other) noexcept : cache_(other.cache_), open_(std::exchange(other.open_, false)) {}
    Pause& operator=(Pause&&) = delete;
    ~Pause() {
      if (open_) cache_->lock_.Unlock();
    }

    CacheStatistics Statistics() const;
    // The peaks of before are of no interest any more.
    void ForgetLeast() { cache_->least_ = cache_->cached_; }

   private:
    ThreadCache* const cache_;
    bool open_;  // not for a closed cache, which stands still for ever
  };

 private:
  // The blocks of one size class: the last that came goes first.
  struct Bin {
    std::unique_ptr<CachedBlock[]> blocks;  // an array of `room`, of which `count` are here
    uint64_t taken = 0;                     // all-time
    // Of the class: computing them costs more than reading them.
    BlockWord live;  // without slack
    uint32_t block_bytes = 0;
    uint16_t count = 0;
    uint16_t room = 0;
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

  // What is beyond the share of what is here, the largest first; everything where share is 0.
  ReservedVector<CachedBlock> TakeDownTo(int64_t share);
  ReservedVector<CachedBlock> Remove(int64_t keep_bytes);

  mutable OwnerLock lock_;
  const std::atomic<bool>& broken_;
  const Lane lane_;
  Freers freers_;
  const uint64_t alignment_;
  uint64_t taken_requested_ = 0;
  // What is here; and the least since the owner's pool last changed, which is when most was in use. Requests that come
  // may be larger than those that went.
  Tally cached_;
  Tally least_;
  Tally left_;
  std::array<Bin, kSizeClasses> bins_;
};

}  // namespace commpool::internal::engine

#endif  // COMMPOOL_SRC_ENGINE_THREAD_CACHE_H_
