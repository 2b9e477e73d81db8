// The caches of one thread, as it finds them: few, and mostly the same one again, so that what was found last is kept
// by its hash. Its own thread only.
#ifndef COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_
#define COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/host_reserve.h"
#include "src/engine/thread_cache.h"
#include "src/pool/shared/own_state.h"
#include "src/pool/shared/pool_table.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class CacheRegistry;

struct OwnCache {
  const CacheRegistry* registry = nullptr;
  PoolHandle pool = 0;
  StreamKey stream = 0;
  engine::Lane lane = 0;
  engine::ThreadCache* cache = nullptr;
};

class OwnCaches {
 public:
  ~OwnCaches();

  engine::ThreadCache* Find(const CacheRegistry* registry, PoolHandle pool, StreamKey stream) {
    const OwnCache& recent = recent_by_key_[Hash(pool, stream)];
    if (recent.pool == pool && recent.stream == stream && recent.registry == registry) return recent.cache;
    return Search(registry, pool, stream);
  }

  engine::ThreadCache* Find(const CacheRegistry* registry, engine::Lane lane) {
    const OwnCache& recent = recent_by_lane_[lane % kRecent];
    if (recent.lane == lane && recent.registry == registry) return recent.cache;
    return Search(registry, lane);
  }

  void Add(const OwnCache& own, std::shared_ptr<CacheRegistry> registry, std::shared_ptr<engine::ThreadCache> cache);

 private:
  static constexpr size_t kRecent = 64;
  using Recent = std::array<OwnCache, kRecent>;

  static size_t Hash(PoolHandle pool, StreamKey stream) { return (pool * 31 + (stream >> 4) + stream) % kRecent; }

  [[gnu::cold]] engine::ThreadCache* Search(const CacheRegistry* registry, PoolHandle pool, StreamKey stream);
  [[gnu::cold]] engine::ThreadCache* Search(const CacheRegistry* registry, engine::Lane lane);
  // Forgets those of pools, streams and runtimes that are gone.
  void DropClosed();

  Recent recent_by_key_;
  Recent recent_by_lane_;
  ReservedVector<OwnCache> caches_;
  ReservedVector<std::pair<std::shared_ptr<CacheRegistry>, std::shared_ptr<engine::ThreadCache>>> owners_;
};

// Makes this thread's where there are none yet. Null while the thread ends: it gets no cache any more.
OwnCaches* MakeOwnCaches();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_
