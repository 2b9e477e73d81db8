// Which thread has a cache of which lane, and how a pool reaches all of its own.
//
// A lane is one pool's memory as one stream sees it. A thread finds its cache in a table of its own, without a lock;
// the registry's lock is taken when a cache is made, emptied by its pool, or ends with its thread. Any thread.
#ifndef COMMPOOL_SRC_POOL_CACHES_CACHE_REGISTRY_H_
#define COMMPOOL_SRC_POOL_CACHES_CACHE_REGISTRY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/engine/block_map.h"
#include "src/engine/thread_cache.h"
#include "src/pool/caches/own_caches.h"
#include "src/pool/shared/block_owner.h"

namespace commpool::internal {

// What a cache has to know of the pool whose blocks it keeps.
struct CachedPool {
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner;
  uint64_t alignment = 0;
  const std::atomic<bool>* broken = nullptr;  // the device is lost: lives as long as the owner
};

class CacheRegistry : public std::enable_shared_from_this<CacheRegistry> {
 public:
  engine::BlockMap& blocks() { return blocks_; }

  // This thread's cache, where it was found lately; no lock, and no call of a function.
  engine::ThreadCache* FindAtOnce(engine::Lane lane) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->FindAtOnce(this, lane);
  }
  // The same, or null where it has none: no lock.
  engine::ThreadCache* Find(PoolHandle pool, StreamKey stream) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, pool, stream);
  }
  engine::ThreadCache* Find(engine::Lane lane) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, lane);
  }
  // What this thread's caches of the pool hold.
  engine::Holding OwnHolding(PoolHandle pool) const {
    return own_state.caches == nullptr ? engine::Holding() : own_state.caches->HoldingOf(this, pool);
  }

  // The lane of a pool and stream, made at its first use.
  engine::Lane LaneOf(const CachedPool& pool, StreamKey stream);
  // Gives this thread a cache of the lane, if it has none, the lane still is its stream's and the thread does not end.
  void Open(engine::Lane lane);

  // Of a live block that no cache is to have: whether its word was `from`, and is `to` now. Of all who try, and of the
  // caches' owners who free the block, one has its way.
  bool Claim(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);

  // What all caches of a pool hold, taken out.
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
  // Every cache ends; what they hold stays where it is.
  void CloseAll();

  // Of all the pool's caches at one moment, which is told to `meanwhile`: it may take the pool's lock, and reads the
  // pool's own figures at that same moment. What the caches held at least counts from now on.
  using Meanwhile = std::function<void(const engine::CacheStatistics&)>;
  void Statistics(PoolHandle pool, const Meanwhile& meanwhile) const;
  // Lanes that are not forgotten.
  size_t lanes() const;

  // Of a thread that ends: its cache goes, and what it holds goes back.
  void End(engine::ThreadCache* cache);

 private:
  struct LaneEntry {
    CachedPool pool;
    StreamKey stream = 0;
    ReservedVector<std::shared_ptr<engine::ThreadCache>> caches;
  };

  void CloseLane(LaneEntry& entry, engine::ReturnedBlocks& returned) COMMPOOL_REQUIRES(mutex_);

  engine::BlockMap blocks_;
  mutable Mutex mutex_{LockRank::kCaches};
  engine::Lane next_lane_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedHashMap<engine::Lane, LaneEntry> lanes_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedMap<std::pair<PoolHandle, StreamKey>, engine::Lane> by_key_ COMMPOOL_GUARDED_BY(mutex_);
  ReservedMap<PoolHandle, engine::CacheStatistics> past_ COMMPOOL_GUARDED_BY(mutex_);  // of caches that have ended
  ReservedSet<PoolHandle> closed_ COMMPOOL_GUARDED_BY(mutex_);                         // for good
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_CACHE_REGISTRY_H_
