// OwnCaches: what a thread does rarely: it makes its object, searches all of its caches, and ends.
#include <algorithm>

#include "src/library/base/fork_guard.h"
#include "src/library/base/of_this_thread.h"
#include "src/library/pool/caches/thread_caches.h"

namespace commpool::internal {

// Null too once this thread has destroyed its object. A function of the program gets none: its calls must take the slow
// path, which refuses them (WithoutFastPaths).
OwnCaches* MakeOwnCaches() {
  if (own_state.caches == nullptr && !own_state.in_user_function) {
    own_state.caches = OfThisThread<OwnCaches, ThreadCaches>();
  }
  return own_state.caches;
}

OwnCaches::OwnCaches() { static_cast<void>(InForkedChild()); }  // so that it knows this process as the parent

// Runs as the thread ends. The owners' list keeps each ThreadCaches alive that is called here.
OwnCaches::~OwnCaches() {
  own_state.caches = nullptr;  // from now on the thread's blocks go to their pools
  // A lock that another thread of the parent held stays locked in the child for ever.
  if (InForkedChild()) return;
  for (auto& [all, cache] : owners_) all->End(cache.get());
}

// A search by pool and stream, for allocations; the slot remembers the answer.
engine::ThreadCache* OwnCaches::Find(const ThreadCaches* all, PoolHandle pool, StreamKey stream) const {
  const auto own = std::find_if(caches_.begin(), caches_.end(), [&](const OwnCache& one) {
    return one.pool == pool && one.stream == stream && one.all == all;
  });
  return own == caches_.end() ? nullptr : own->cache;
}

// A search by lane, for frees: a block's word has the number.
engine::ThreadCache* OwnCaches::Find(const ThreadCaches* all, engine::Lane lane) {
  if (engine::ThreadCache* const recent = FindAtOnce(all, lane)) return recent;
  const auto own = std::ranges::find_if(caches_, [&](const OwnCache& one) { return one.IsOf(all, lane); });
  if (own == caches_.end()) return nullptr;
  recent_[lane % kRecent] = *own;
  return own->cache;
}

// Takes no lock of ours, and gets zeros from a cache where another thread is at work.
engine::Holding OwnCaches::HoldingOf(const ThreadCaches* all, PoolHandle pool) const {
  engine::Holding holding;
  for (const OwnCache& own : caches_) {
    if (own.pool == pool && own.all == all) holding += own.cache->Look();
  }
  return holding;
}

// A thread that uses many streams one after the other must not collect their caches, so it drops those that ended.
void OwnCaches::Add(const OwnCache& own, std::shared_ptr<ThreadCaches> all,
                    std::shared_ptr<engine::ThreadCache> cache) {
  // From the end, so that erasing moves no place that is still to be looked at. A cache that was closed belongs to no
  // lane any more; only this list kept it alive.
  for (size_t index = caches_.size(); index-- > 0;) {
    const engine::ThreadCache* const closed = caches_[index].cache;
    if (!closed->closed()) continue;
    // A slot may still point to the cache that goes now.
    for (auto& [newer, older] : slots_) {
      if (newer.cache == closed) newer.cache = nullptr;
      if (older.cache == closed) older.cache = nullptr;
    }
    caches_.erase(caches_.begin() + static_cast<long>(index));
    owners_.erase(owners_.begin() + static_cast<long>(index));
    recent_ = {};  // it has copies of the erased entry; Find fills it again
  }
  caches_.push_back(own);
  owners_.emplace_back(std::move(all), std::move(cache));
}

}  // namespace commpool::internal
