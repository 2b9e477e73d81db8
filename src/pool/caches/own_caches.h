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
  engine::ThreadCache* cache = nullptr;

  bool IsOf(const CacheRegistry* asked, engine::Lane lane) const {
    return cache != nullptr && cache->lane() == lane && registry == asked;
  }
};

// What decides where an allocation without a pool's name goes, but for its size.
struct RouteKey {
  const CacheRegistry* registry = nullptr;
  uint64_t own_changes = 0;     // of the thread's scopes
  uint64_t shared_changes = 0;  // of those of streams and of the process
  uint64_t stream = 0;          // a handle, as this thread means it
  int device = 0;

  friend bool operator==(const RouteKey&, const RouteKey&) = default;
};

// The cache that serves it, for so many bytes more than the least.
struct RoutedCache {
  RouteKey key;
  uint64_t least = 0;
  uint64_t span = 0;
  engine::ThreadCache* cache = nullptr;
};

class OwnCaches {
 public:
  ~OwnCaches();

  // Where it was found lately; else null, and Find finds it.
  engine::ThreadCache* FindAtOnce(const CacheRegistry* registry, PoolHandle pool, StreamKey stream) const {
    const OwnCache& recent = recent_by_key_[Hash(pool, stream)];
    return recent.pool == pool && recent.stream == stream && recent.registry == registry ? recent.cache : nullptr;
  }
  engine::ThreadCache* FindAtOnce(const CacheRegistry* registry, engine::Lane lane) const {
    const OwnCache& recent = recent_by_lane_[lane % kRecent];
    return recent.IsOf(registry, lane) ? recent.cache : nullptr;
  }

  engine::ThreadCache* Find(const CacheRegistry* registry, PoolHandle pool, StreamKey stream) {
    engine::ThreadCache* const recent = FindAtOnce(registry, pool, stream);
    return recent != nullptr ? recent : Search(registry, pool, stream);
  }
  engine::ThreadCache* Find(const CacheRegistry* registry, engine::Lane lane) {
    engine::ThreadCache* const recent = FindAtOnce(registry, lane);
    return recent != nullptr ? recent : Search(registry, lane);
  }

  // The cache that served such a request lately; else null.
  engine::ThreadCache* FindRouted(const RouteKey& key, uint64_t bytes) const {
    const RoutedCache& routed = routed_[PlaceOf(key)];
    return routed.key == key && bytes - routed.least <= routed.span ? routed.cache : nullptr;
  }
  void Remember(const RoutedCache& routed) { routed_[PlaceOf(routed.key)] = routed; }

  void Add(const OwnCache& own, std::shared_ptr<CacheRegistry> registry, std::shared_ptr<engine::ThreadCache> cache);

 private:
  static constexpr size_t kRecent = 64;
  using Recent = std::array<OwnCache, kRecent>;

  static constexpr size_t kRouted = 8;
  static size_t PlaceOf(const RouteKey& key) { return ((key.stream >> 4) + (key.stream >> 9)) % kRouted; }

  static size_t Hash(PoolHandle pool, StreamKey stream) { return (pool * 31 + (stream >> 4) + stream) % kRecent; }

  engine::ThreadCache* Search(const CacheRegistry* registry, PoolHandle pool, StreamKey stream);
  engine::ThreadCache* Search(const CacheRegistry* registry, engine::Lane lane);
  // Forgets those of pools, streams and runtimes that are gone.
  void DropClosed();

  alignas(sizeof(OwnCache)) Recent recent_by_key_;
  Recent recent_by_lane_;
  std::array<RoutedCache, kRouted> routed_;
  ReservedVector<OwnCache> caches_;
  ReservedVector<std::pair<std::shared_ptr<CacheRegistry>, std::shared_ptr<engine::ThreadCache>>> owners_;
};

// Makes this thread's where there are none yet. Null while the thread ends: it gets no cache any more.
OwnCaches* MakeOwnCaches();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_
