#include "src/pool/caches/own_caches.h"

#include "src/base/of_this_thread.h"
#include "src/pool/caches/cache_registry.h"

namespace commpool::internal {

OwnCaches* MakeOwnCaches() {
  if (own_state.caches == nullptr) own_state.caches = OfThisThread<OwnCaches, CacheRegistry>();
  return own_state.caches;
}

OwnCaches::~OwnCaches() {
  own_state.caches = nullptr;  // from now on the thread's blocks go to their pools
  for (auto& [registry, cache] : owners_) registry->End(cache.get());
}

engine::ThreadCache* OwnCaches::Search(const CacheRegistry* registry, PoolHandle pool, StreamKey stream) {
  for (const OwnCache& own : caches_) {
    if (own.pool != pool || own.stream != stream || own.registry != registry) continue;
    recent_by_key_[Hash(pool, stream)] = own;
    return own.cache;
  }
  return nullptr;
}

engine::ThreadCache* OwnCaches::Search(const CacheRegistry* registry, engine::Lane lane) {
  for (const OwnCache& own : caches_) {
    if (!own.IsOf(registry, lane)) continue;
    recent_by_lane_[lane % kRecent] = own;
    return own.cache;
  }
  return nullptr;
}

void OwnCaches::Add(const OwnCache& own, std::shared_ptr<CacheRegistry> registry,
                    std::shared_ptr<engine::ThreadCache> cache) {
  DropClosed();
  caches_.push_back(own);
  owners_.emplace_back(std::move(registry), std::move(cache));
}

void OwnCaches::DropClosed() {
  for (size_t index = caches_.size(); index-- > 0;) {
    if (!caches_[index].cache->closed()) continue;
    caches_.erase(caches_.begin() + static_cast<long>(index));
    owners_.erase(owners_.begin() + static_cast<long>(index));
    recent_by_key_ = {};
    recent_by_lane_ = {};
    routed_ = {};
  }
}

}  // namespace commpool::internal
