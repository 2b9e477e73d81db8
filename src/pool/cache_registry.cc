#include "src/pool/cache_registry.h"

#include <algorithm>

namespace commpool::internal {

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

std::vector<engine::CachedBlock> CacheRegistry::Close(PoolHandle pool, Reopen reopen) {
  std::vector<engine::CachedBlock> closed;
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    if (entry.pool != pool) continue;
    entry.ended = entry.ended || reopen == Reopen::kNever;
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

}  // namespace commpool::internal
