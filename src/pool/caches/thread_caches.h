// The threads' caches as pools and the runtime use them: the first rung of an allocation, and of a free.
//
//   down:  Runtime takes from the cache in the slot  -> TakeFor, which looks for the cache -> the pool
//   back:  Give, to the cache that the block's word names -> GiveOrMakeRoom -> the owner's Free
//
// What is left of the arrows takes no lock, calls nobody, and serves nobody where somebody watches blocks.
//
// A block of a size that caches keep says so in its word, which its address finds without a lock: Publish writes it
// when a pool serves the block, Withdraw ends it when the block is freed to the pool.
//
// A lane is one pool's memory as one stream sees it, and a thread has a cache of each lane that it uses. It finds them
// in a table of its own, without a lock; the lock here is taken when a cache is made, emptied by its pool, or ends with
// its thread. Any thread.
#ifndef COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_
#define COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "commpool/status.h"
#include "src/base/mutex.h"
#include "src/engine/block_map.h"
#include "src/engine/thread_cache.h"
#include "src/pool/caches/own_caches.h"
#include "src/pool/shared/block_owner.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

enum class Caching {
  kNo,   // only the pool frees the block
  kYes,  // threads' caches may keep it
};

// A cache's knowledge of the pool whose blocks it keeps.
struct CachedPool {
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner;
  uint64_t alignment = 0;
  const std::atomic<bool>* broken = nullptr;  // the device is lost: lives as long as the owner
};

// Shared: threads that end later than the runtime still look at it, and call End.
class ThreadCaches : public std::enable_shared_from_this<ThreadCaches> {
 public:
  // The observer hears of what a cache serves and takes back, as long as the runtime lives.
  explicit ThreadCaches(const MemoryObserver& observer) : observer_(observer), watched_(observer.watches_blocks()) {}

  // The slot of such a request; null where this thread does not know who serves it.
  [[gnu::always_inline]] Slot* FindSlot(Route route, uint64_t bytes) const {
    if (own_state.caches == nullptr) return nullptr;
    route.all = this;
    return own_state.caches->FindSlot(route, bytes);
  }
  // Such requests of `least` to `most` bytes are served by the pool as long as the route stays the same. Null where the
  // thread can keep nothing.
  Slot* Remember(Route route, StreamKey stream, uint64_t least, uint64_t most, PoolHandle server) const;

  // Down, from whatever cache this thread has of the slot's pool. 0 where it has none, or that has no such block.
  CUdeviceptr TakeFor(Slot& slot, const std::string& pool_name, uint64_t bytes, StreamKey stream) const;

  // Back. Whether a cache that this thread used lately has the block now.
  [[gnu::always_inline]] bool Give(CUdeviceptr address) const {
    if (watched_ || own_state.caches == nullptr) return false;
    engine::AtomicWord* const word = blocks_.Find(address);
    if (word == nullptr) return false;
    const engine::BlockWord block(word->load(std::memory_order_acquire));
    if (block.state() != engine::BlockWord::State::kCacheable) return false;
    engine::ThreadCache* const cache = own_state.caches->FindAtOnce(this, block.lane());
    return cache != nullptr && cache->GiveAtOnce({address, word}, block);
  }
  // The same of any cache of this thread. Where it has none of the block's lane it gets one, and a full one gives half
  // of what it has back to the owner.
  bool GiveOrMakeRoom(CUdeviceptr address, BlockOwner& owner);

  // A small block that a pool serves: `range` is the block, `requested` what was asked for.
  // Where the thread's cache, or the block's word, cannot be made the block is not cached.
  void Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested, StreamKey stream,
               Caching caching);
  // The same for a large one.
  void PublishLarge(CUdeviceptr address, PoolHandle pool) {
    engine::AtomicWord* const word = blocks_.MakeLarge(address);
    if (word != nullptr) word->store(engine::LargeWord::Live(address, pool).bits(), std::memory_order_release);
  }
  // The end of a block that is freed to its pool; kNotFound where it was freed already. Returns what was asked for it,
  // 0 where the word does not say: then the engine does.
  Result<uint64_t> Withdraw(CUdeviceptr address);
  // A live block may not go to a cache any more; kNotFound where it was freed. Returns as Withdraw.
  Result<uint64_t> MakeUncacheable(CUdeviceptr address);

  // The word of the block at the address now; kNone where nothing was published.
  engine::BlockWord WordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const word = blocks_.Find(address);
    const engine::BlockWord small(word == nullptr ? 0 : word->load(std::memory_order_acquire));
    if (small.state() != engine::BlockWord::State::kNone) return small;
    const engine::AtomicWord* const large_word = blocks_.FindLarge(address);
    const engine::LargeWord large(large_word == nullptr ? 0 : large_word->load(std::memory_order_acquire));
    return large.IsOf(address) ? engine::BlockWord::Live(large.owner()) : small;
  }

  // Of one pool, all threads.
  //
  // What its caches hold, taken out.
  engine::ReturnedBlocks Drain(PoolHandle pool);
  // The same, and the caches end; kNever: blocks freed from now on go to the pool.
  enum class Reopen { kAtNextUse, kNever };
  engine::ReturnedBlocks Close(PoolHandle pool, Reopen reopen);
  // After kNever: caches may open again.
  void LetReopen(PoolHandle pool);
  // The stream's handle will mean another stream: the pool's lane of it ends and is forgotten.
  engine::ReturnedBlocks ForgetStream(PoolHandle pool, StreamKey stream);
  // The pool is gone: nothing is kept of it. What its caches held goes with its memory.
  void ForgetPool(PoolHandle pool);
  // Of all its caches at one moment, which is told to `meanwhile`: it may take the pool's lock, and reads the pool's
  // own figures at that same moment. What the caches held at least counts from now on.
  using Meanwhile = std::function<void(const engine::CacheStatistics&)>;
  void Statistics(PoolHandle pool, const Meanwhile& meanwhile) const;

  // The blocks and bytes in this thread's caches of the pool.
  engine::Holding OwnHolding(PoolHandle pool) const {
    return own_state.caches == nullptr ? engine::Holding() : own_state.caches->HoldingOf(this, pool);
  }
  // Every cache ends; what they hold stays where it is.
  void CloseAll();

  // Lanes.
  //
  // The one of a pool and stream, made at its first use. Streams that nobody promised may be gone, and nobody says so:
  // of their lanes a pool keeps the newest, and what the caches of another one held is left in `returned`.
  engine::Lane LaneOf(const CachedPool& pool, StreamKey stream, engine::ReturnedBlocks* returned);
  // Those that are not forgotten.
  size_t lanes() const;
  // Gives this thread a cache of the lane, if it has none, the lane still is its stream's and the thread does not end.
  void Open(engine::Lane lane);
  // This thread's cache; null where it has none. No lock.
  engine::ThreadCache* Find(PoolHandle pool, StreamKey stream) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, pool, stream);
  }
  engine::ThreadCache* Find(engine::Lane lane) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, lane);
  }
  // For a live block that no cache shall get: changes its word from `from` to `to`, and says whether it did. Among all
  // who try, and the caches' owners who free the block, one succeeds.
  bool Claim(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);
  // For a thread that ends: its cache goes, and its blocks go back.
  void End(engine::ThreadCache* cache);

 private:
  struct LaneEntry {
    CachedPool pool;
    StreamKey stream = 0;
    ReservedVector<std::shared_ptr<engine::ThreadCache>> caches;
  };

  // Changes a live block's word from `from` to `to`, and says whether it did. False for a block in a cache.
  bool Replace(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);
  Result<uint64_t> WithdrawLarge(CUdeviceptr address);
  void CloseLane(LaneEntry& entry, engine::ReturnedBlocks& returned) COMMPOOL_REQUIRES(mutex_);
  void ForgetLane(PoolHandle pool, StreamKey stream, engine::ReturnedBlocks& returned) COMMPOOL_REQUIRES(mutex_);
  // The stream of the pool's oldest lane of those that nobody promised, once there are as many as may be.
  std::optional<StreamKey> OldestUnpromised(PoolHandle pool) const COMMPOOL_REQUIRES(mutex_);

  const MemoryObserver& observer_;
  const bool watched_;  // a copy: the fast path reads it
  engine::BlockMap blocks_;
  mutable Mutex mutex_{LockRank::kCaches};
  engine::Lane next_lane_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedHashMap<engine::Lane, LaneEntry> lanes_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedMap<std::pair<PoolHandle, StreamKey>, engine::Lane> by_key_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedMap<PoolHandle, engine::CacheStatistics> past_ COMMPOOL_GUARDED_BY(mutex_);  // of caches that have ended
  ReservedSet<PoolHandle> closed_ COMMPOOL_GUARDED_BY(mutex_);                         // for good
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_
