#include "src/pool/cache_registry.h"

#include <algorithm>
#include <array>

namespace commpool {

namespace {

// A cache as its thread finds it.
struct OwnCache {
  const CacheRegistry* registry = nullptr;
  PoolHandle pool = 0;
  StreamKey stream = 0;
  engine::Lane lane = 0;
  engine::ThreadCache* cache = nullptr;
};

// The caches of one thread: few, and mostly the same one again, so that what was found last is kept by its hash.
class OwnCaches {
 public:
  ~OwnCaches() {
    for (auto& [registry, cache] : owners_) registry->Retire(cache.get());
  }

  engine::ThreadCache* Find(const CacheRegistry* registry, PoolHandle pool, StreamKey stream) {
    OwnCache& recent = recent_by_key_[Hash(pool, stream)];
    if (recent.pool == pool && recent.stream == stream && recent.registry == registry) return recent.cache;
    for (const OwnCache& own : caches_) {
      if (own.pool == pool && own.stream == stream && own.registry == registry) return (recent = own).cache;
    }
    return nullptr;
  }

  engine::ThreadCache* Find(const CacheRegistry* registry, engine::Lane lane) {
    OwnCache& recent = recent_by_lane_[lane % kRecent];
    if (recent.lane == lane && recent.registry == registry) return recent.cache;
    for (const OwnCache& own : caches_) {
      if (own.lane == lane && own.registry == registry) return (recent = own).cache;
    }
    return nullptr;
  }

  void Add(const OwnCache& own, std::shared_ptr<CacheRegistry> registry, std::shared_ptr<engine::ThreadCache> cache) {
    DropClosed();
    caches_.push_back(own);
    owners_.emplace_back(std::move(registry), std::move(cache));
  }

 private:
  static constexpr size_t kRecent = 64;
  using Recent = std::array<OwnCache, kRecent>;

  static size_t Hash(PoolHandle pool, StreamKey stream) { return (pool * 31 + (stream >> 4) + stream) % kRecent; }

  // Of pools, streams and runtimes that are gone.
  void DropClosed() {
    for (size_t index = caches_.size(); index-- > 0;) {
      if (!caches_[index].cache->closed()) continue;
      caches_.erase(caches_.begin() + static_cast<long>(index));
      owners_.erase(owners_.begin() + static_cast<long>(index));
      recent_by_key_ = {};
      recent_by_lane_ = {};
    }
  }

  Recent recent_by_key_;
  Recent recent_by_lane_;
  std::vector<OwnCache> caches_;
  std::vector<std::pair<std::shared_ptr<CacheRegistry>, std::shared_ptr<engine::ThreadCache>>> owners_;
};

// The pointer costs the fast path one load; the object, which ends with its thread, is looked for at its first use
// only.
thread_local constinit OwnCaches* own_caches __attribute__((tls_model("initial-exec"))) = nullptr;

OwnCaches& MakeOwnCaches() {
  struct Owner {
    OwnCaches caches;
    Owner() { own_caches = &caches; }
    ~Owner() { own_caches = nullptr; }
  };
  thread_local Owner owner;
  return owner.caches;
}

}  // namespace

engine::ThreadCache* CacheRegistry::Find(PoolHandle pool, StreamKey stream) const {
  return own_caches == nullptr ? nullptr : own_caches->Find(this, pool, stream);
}

engine::ThreadCache* CacheRegistry::Find(engine::Lane lane) const {
  return own_caches == nullptr ? nullptr : own_caches->Find(this, lane);
}

engine::Lane CacheRegistry::LaneOf(const std::shared_ptr<Pool>& pool, StreamKey stream) {
  MutexLock lock(mutex_);
  engine::Lane& lane = by_key_[{pool->handle(), stream}];
  if (lane == 0) {
    lane = next_lane_++;
    LaneEntry& entry = lanes_[lane];
    entry.pool = pool->handle();
    entry.stream = stream;
    entry.owner = pool;
  }
  return lane;
}

void CacheRegistry::Open(engine::Lane lane) {
  if (const engine::ThreadCache* const own = Find(lane); own != nullptr && !own->closed()) return;
  OwnCache own{this, 0, 0, lane, nullptr};
  std::shared_ptr<engine::ThreadCache> cache;
  {
    MutexLock lock(mutex_);
    const auto found = lanes_.find(lane);
    if (found == lanes_.end() || found->second.ended) return;
    const std::shared_ptr<Pool> pool = found->second.owner.lock();
    if (pool == nullptr) return;
    cache = std::make_shared<engine::ThreadCache>(lane, pool->alignment(), pool->broken());
    found->second.caches.push_back(cache);
    own.pool = found->second.pool;
    own.stream = found->second.stream;
  }
  own.cache = cache.get();
  MakeOwnCaches().Add(own, shared_from_this(), std::move(cache));
}

std::vector<engine::CachedBlock> CacheRegistry::Drain(PoolHandle pool) {
  std::vector<engine::CachedBlock> drained;
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    if (entry.pool != pool) continue;
    for (const auto& cache : entry.caches) {
      const std::vector<engine::CachedBlock> blocks = cache->TakeAll();
      drained.insert(drained.end(), blocks.begin(), blocks.end());
    }
  }
  return drained;
}

std::vector<engine::CachedBlock> CacheRegistry::CloseLane(LaneEntry& entry) {
  std::vector<engine::CachedBlock> closed;
  for (const auto& cache : entry.caches) {
    const std::vector<engine::CachedBlock> blocks = cache->Close();
    closed.insert(closed.end(), blocks.begin(), blocks.end());
    entry.past += cache->Figures();
  }
  entry.caches.clear();
  return closed;
}

std::vector<engine::CachedBlock> CacheRegistry::Close(PoolHandle pool) {
  std::vector<engine::CachedBlock> closed;
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    if (entry.pool != pool) continue;
    const std::vector<engine::CachedBlock> blocks = CloseLane(entry);
    closed.insert(closed.end(), blocks.begin(), blocks.end());
  }
  return closed;
}

std::vector<std::pair<std::shared_ptr<Pool>, std::vector<engine::CachedBlock>>> CacheRegistry::Forget(
    StreamKey stream) {
  std::vector<std::pair<std::shared_ptr<Pool>, std::vector<engine::CachedBlock>>> closed;
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    if (entry.stream != stream || entry.ended) continue;
    entry.ended = true;
    by_key_.erase({entry.pool, stream});
    std::vector<engine::CachedBlock> blocks = CloseLane(entry);
    if (std::shared_ptr<Pool> pool = entry.owner.lock()) closed.emplace_back(std::move(pool), std::move(blocks));
  }
  return closed;
}

void CacheRegistry::CloseAll() {
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    entry.ended = true;
    CloseLane(entry);
  }
}

engine::CacheFigures CacheRegistry::Figures(PoolHandle pool) const {
  engine::CacheFigures figures;
  MutexLock lock(mutex_);
  for (const auto& [lane, entry] : lanes_) {
    if (entry.pool != pool) continue;
    figures += entry.past;
    for (const auto& cache : entry.caches) figures += cache->Figures();
  }
  return figures;
}

void CacheRegistry::Retire(engine::ThreadCache* cache) {
  std::vector<engine::CachedBlock> blocks;
  std::shared_ptr<Pool> pool;
  {
    MutexLock lock(mutex_);
    LaneEntry& entry = Entry(cache->lane());
    const auto own =
        std::find_if(entry.caches.begin(), entry.caches.end(), [&](const auto& other) { return other.get() == cache; });
    if (own == entry.caches.end()) return;  // closed before
    blocks = cache->Close();
    entry.past += cache->Figures();
    entry.caches.erase(own);
    pool = entry.owner.lock();
  }
  if (pool != nullptr) pool->TakeBack(blocks);
}

}  // namespace commpool
