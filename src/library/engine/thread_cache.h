// ThreadCache: one thread's cache of one lane: freed small blocks that the same stream may take again at once.
//
// ThreadCaches (src/library/pool/caches) owns it. Its owner in the sense of owner_lock.h is the thread that it serves:
// this thread takes and gives without waiting and without an atomic exchange. Only where several threads have caches of
// the lane, an exchange finds double frees. Other threads may empty or close the cache at any time; meanwhile the owner
// goes to the pool. The cache holds at most kMostBytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/library/base/owner_lock.h"
#include "src/library/engine/block_map.h"
#include "src/library/engine/types.h"

namespace commpool::internal::engine {

// A block on its way between a cache and its pool.
struct CachedBlock {
  Address address = 0;
  AtomicWord* word = nullptr;
};

// The tally of one small block. Its word tells the size that the program asked for.
inline Tally TallyOf(BlockWord word) {
  return {static_cast<int64_t>(word.requested()), static_cast<int64_t>(ClassBytes(word.size_class())), 1};
}

// Blocks on their way back to their pool.
struct ReturnedBlocks {
  std::vector<CachedBlock> blocks;
  // The least that the caches of the emptying thread had held, for peaks (Engine::NoteHolding).
  Tally held;
  // For a closed cache: the requested bytes of its blocks as they came in, less the requested bytes as they went out.
  int64_t requested_more = 0;
};

// What a cache holds, and what went through it since it was made. Added to the pool's statistics when those are read.
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

// Which threads may free the same block at the same moment: those with caches of its lane.
enum class Freers {
  kOwner,    // this cache is the only one
  kSeveral,  // an atomic exchange tells who was first
};

// By size class: the blocks that caches have handed out, all-time, and those in them now.
struct ClassCounts {
  std::array<uint64_t, kSizeClasses> taken = {};
  std::array<uint64_t, kSizeClasses> cached = {};
};

class alignas(128) ThreadCache {
 public:
  static constexpr int64_t kMostBytes = 8 << 20;  // 8 blocks of the largest class
  static constexpr size_t kMostBlocks = 4096;     // of one class

  // While `broken` is true the cache hands out no block. The flag must live until the cache is closed.
  ThreadCache(Lane lane, uint64_t alignment, const std::atomic<bool>& broken, Freers freers = Freers::kOwner);

  Lane lane() const { return lane_; }

  // Take and GiveAtOnce are inlined: two calls would take a tenth of the time of an allocation and its free.
  //
  // For the owner. A block for the request, live again; 0 where there is none, or another thread is at the cache.
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

  // For the owner. Returns whether the cache has taken the block. It does not where it is full, closed or busy, where
  // somebody else freed the block (the word is not `word` any more), or where Give must make room first.
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

  // For the owner: takes a live block of the lane away from all caches, so that only the pool may free it. Changes its
  // word from `from` to `to`, and returns whether it did. Nothing where the cache is closed or busy.
  std::optional<bool> TryChange(AtomicWord& word, BlockWord from, BlockWord to);

  // For every thread; these wait for the owner's short moments.
  std::vector<CachedBlock> TakeAll() { return TakeDownTo(0); }
  // Takes half of the blocks, the largest first: a full cache gives them back to its pool.
  std::vector<CachedBlock> TakeHalf() { return TakeDownTo(2); }
  // Takes all blocks, and refuses everything from now on. Null where it was closed before.
  std::optional<ReturnedBlocks> Close();
  bool closed() const { return lock_.closed(); }
  // Call it before a second thread gets a cache of the lane, and when no second thread has one any more.
  void SetFreers(Freers freers);

  // For the owner, before it changes its pool: what the cache holds, and held at least since the last Look. Zeros while
  // another thread is at the cache.
  Holding Look() {
    if (!lock_.TryLockAsOwner()) return {};
    const Holding holding{least_, cached_};
    least_ = cached_;
    lock_.UnlockAsOwner();
    return holding;
  }

  // While it lives nothing enters or leaves the cache: the owner goes to the pool.
  class [[nodiscard]] Pause {
   public:
    explicit Pause(ThreadCache& cache) : cache_(&cache), open_(cache.lock_.Lock()) {}
    Pause(Pause&& other) noexcept : cache_(other.cache_), open_(std::exchange(other.open_, false)) {}
    Pause& operator=(Pause&&) = delete;
    ~Pause() {
      if (open_) cache_->lock_.Unlock();
    }

    CacheStatistics Statistics() const;
    void AddTo(ClassCounts& counts) const;
    // Forgets the peaks so far.
    void ForgetLeast() { cache_->least_ = cache_->cached_; }

   private:
    ThreadCache* const cache_;
    bool open_;  // false for a closed cache, which never changes again
  };

 private:
  // The blocks of one size class; the newest is taken first.
  struct Bin {
    std::unique_ptr<CachedBlock[]> blocks;  // an array of `room`, of which `count` are used
    uint64_t taken = 0;                     // all-time
    // Both follow from the size class, but reading them is faster than computing them.
    BlockWord live;  // without slack
    uint32_t block_bytes = 0;
    uint16_t count = 0;
    uint16_t room = 0;
  };

  // For the owner. Makes room for more blocks and returns whether there is any. There is none beyond kMostBlocks,
  // without host memory, or where the cache is closed or busy.
  bool MakeRoom(SizeClass size_class);

  // Changes the word from `from` to `to`; returns whether it did. REQUIRES: the owner holds the lock.
  bool Exchange(AtomicWord& word, BlockWord from, BlockWord to) const {
    uint64_t bits = from.bits();
    if (freers_ == Freers::kSeveral) [[unlikely]]
      return word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
    if (word.load(std::memory_order_relaxed) != bits) return false;
    word.store(to.bits(), std::memory_order_release);
    return true;
  }

  // Takes blocks, the largest first, until one part in `share` of the bytes stays; all blocks where share is 0.
  std::vector<CachedBlock> TakeDownTo(int64_t share);
  std::vector<CachedBlock> Remove(int64_t keep_bytes);

  mutable OwnerLock lock_;
  const std::atomic<bool>& broken_;
  const Lane lane_;
  Freers freers_;
  const uint64_t alignment_;
  uint64_t taken_requested_ = 0;
  // What the cache holds, and the least that it held since the owner's pool last changed: the program then used most. A
  // block may leave with a larger request than it came with, so `requested` may be negative.
  Tally cached_;
  Tally least_;
  Tally left_;
  std::array<Bin, kSizeClasses> bins_;
};

}  // namespace commpool::internal::engine
