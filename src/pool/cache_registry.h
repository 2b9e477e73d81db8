// Threads' caches: which thread has one for which lane, and how a pool reaches all of its own.
//
// A lane is one pool's memory as one stream sees it. A thread finds its cache in a table of its own, without a lock;
// the registry's lock is taken when a cache is made, emptied by its pool, or ends with its thread. Any thread.
#ifndef COMMPOOL_SRC_POOL_CACHE_REGISTRY_H_
#define COMMPOOL_SRC_POOL_CACHE_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/engine/block_map.h"
#include "src/engine/thread_cache.h"
#include "src/pool/own_caches.h"
#include "src/pool/pool.h"

namespace commpool::internal {

class CacheRegistry : public std::enable_shared_from_this<CacheRegistry> {
 public:
  engine::BlockMap& blocks() { return blocks_; }

  // This thread's cache, or null where it has none: no lock.
  engine::ThreadCache* Find(PoolHandle pool, StreamKey stream) const {
    return own_caches == nullptr ? nullptr : own_caches->Find(this, pool, stream);
  }
  engine::ThreadCache* Find(engine::Lane lane) const {
    return own_caches == nullptr ? nullptr : own_caches->Find(this, lane);
  }

  // The lane of a pool and stream, made at its first use.
  engine::Lane LaneOf(const std::shared_ptr<Pool>& pool, StreamKey stream);
  // Gives this thread a cache of the lane, if it has none and the lane still is its stream's.
  void Open(engine::Lane lane);

  // What all caches of a pool hold, taken out.
  std::vector<engine::CachedBlock> Drain(PoolHandle pool);
  // The same, and the caches end; kNever: blocks freed from now on go to the pool.
  enum class Reopen { kAtNextUse, kNever };
  std::vector<engine::CachedBlock> Close(PoolHandle pool, Reopen reopen);
  // The stream's handle will mean another stream: its lanes end, in every pool.
  std::vector<std::pair<std::shared_ptr<Pool>, std::vector<engine::CachedBlock>>> Forget(StreamKey stream);
  // Every cache ends; what they hold stays where it is.
  void CloseAll();

  engine::CacheFigures Figures(PoolHandle pool) const;

  // Of a thread that ends: its cache goes, and what it holds goes back.
  void Retire(engine::ThreadCache* cache);

 private:
  struct LaneEntry {
    PoolHandle pool = 0;
    StreamKey stream = 0;
    std::weak_ptr<Pool> owner;
    bool ended = false;
    engine::CacheFigures past;  // of caches that are gone
    std::vector<std::shared_ptr<engine::ThreadCache>> caches;
  };

  LaneEntry& Entry(engine::Lane lane) COMMPOOL_REQUIRES(mutex_) { return lanes_.at(lane); }
  std::vector<engine::CachedBlock> CloseLane(LaneEntry& entry) COMMPOOL_REQUIRES(mutex_);

  engine::BlockMap blocks_;
  mutable Mutex mutex_{LockRank::kCaches};
  engine::Lane next_lane_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<engine::Lane, LaneEntry> lanes_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<std::pair<PoolHandle, StreamKey>, engine::Lane> by_key_ COMMPOOL_GUARDED_BY(mutex_);
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHE_REGISTRY_H_
