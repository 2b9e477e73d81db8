// Lanes: finds and makes the threads' caches of a pool and a stream.
#include <algorithm>

#include "src/library/pool/caches/thread_caches.h"

namespace commpool::internal {

namespace {

constexpr size_t kMostUnpromisedLanes = 32;  // of a pool; a thread searches its caches of these one by one

// For one list of what several caches held.
void Append(std::vector<engine::CachedBlock>* all, const std::vector<engine::CachedBlock>& blocks) {
  all->insert(all->end(), blocks.begin(), blocks.end());
}

// Only the pool's own lanes are visited: a program may have thousands of pools.
template <typename Keys, typename Lanes, typename Visit>
void ForEachLane(const Keys& by_key, Lanes& lanes, PoolHandle pool, Visit visit) {
  for (auto key = by_key.lower_bound({pool, 0}); key != by_key.end() && key->first.first == pool; ++key) {
    visit(lanes.find(key->second)->second);
  }
}

}  // namespace

// Every stream without a promise is new to us, even if the program has destroyed the ones before. So the oldest lane of
// such streams ends where there are too many. Publish calls it for the first block of a lane on each thread.
engine::Lane ThreadCaches::LaneOf(const CachedPool& pool, StreamKey stream, engine::ReturnedBlocks* returned) {
  MutexLock lock(mutex_);
  const auto found = by_key_.find({pool.handle, stream});
  if (found != by_key_.end()) return found->second;
  if (IsUnpromised(stream)) {
    // In the order of streams. The driver numbers them upwards, so the first one is the oldest.
    std::vector<StreamKey> unpromised;
    for (auto key = by_key_.lower_bound({pool.handle, 0}); key != by_key_.end() && key->first.first == pool.handle;
         ++key) {
      if (IsUnpromised(key->first.second)) unpromised.push_back(key->first.second);
    }
    if (unpromised.size() >= kMostUnpromisedLanes) ForgetLane(pool.handle, unpromised.front(), *returned);
  }
  // The entry has no cache yet: each thread adds its own (Open).
  const engine::Lane lane = next_lane_++;
  by_key_.emplace(std::pair(pool.handle, stream), lane);
  lanes_.emplace(lane, LaneEntry{pool, stream, {}});
  return lane;
}

// Words of its blocks may still name the lane: as no number comes back, a free of such a block finds no cache, and goes
// to the pool.
void ThreadCaches::ForgetLane(PoolHandle pool, StreamKey stream, engine::ReturnedBlocks& returned) {
  const auto key = by_key_.find({pool, stream});
  if (key == by_key_.end()) return;
  // What this thread's caches held, less what they hold after the close: that much left them now (Engine::NoteHolding).
  returned.held = OwnHolding(pool).least;
  const auto lane = lanes_.find(key->second);
  CloseLane(lane->second, returned);
  lanes_.erase(lane);
  by_key_.erase(key);
  returned.held -= OwnHolding(pool).least;
}

// Called by Publish on the thread that gets the first block, and by GiveOrMakeRoom on a thread that frees another
// thread's block.
void ThreadCaches::Open(engine::Lane lane) {
  // A closed cache does not count: its pool may open caches again.
  if (const engine::ThreadCache* const own = Find(lane); own != nullptr && !own->closed()) return;
  // Before the lock, because it may allocate a thread's whole state.
  OwnCaches* const caches = MakeOwnCaches();
  if (caches == nullptr) return;
  OwnCache own{this};
  std::shared_ptr<engine::ThreadCache> cache;
  {
    MutexLock lock(mutex_);
    const auto found = lanes_.find(lane);
    // The pool ends or sleeps, or has forgotten the stream meanwhile. Then its blocks are freed to it.
    if (found == lanes_.end() || closed_.contains(found->second.pool.handle)) return;
    const CachedPool& pool = found->second.pool;
    // A cache reads `broken`, which lives as long as the pool.
    if (pool.owner.expired()) return;
    std::vector<std::shared_ptr<engine::ThreadCache>>& others = found->second.caches;
    const engine::Freers freers = others.empty() ? engine::Freers::kOwner : engine::Freers::kSeveral;
    cache = std::make_shared<engine::ThreadCache>(lane, pool.alignment, *pool.broken, freers);
    others.push_back(cache);
    if (others.size() == 2) others.front()->SetFreers(freers);  // from now on two threads may free one block at once
    own.pool = pool.handle;
    own.stream = found->second.stream;
  }
  // Without the lock: nobody but this thread reads its own table.
  own.cache = cache.get();
  caches->Add(own, shared_from_this(), std::move(cache));
}

// Any thread, for a block that some thread's cache could take at the same moment. Takes the lock only where this
// thread's own cache cannot decide. A block that no cache may take needs no cache's permission: one exchange decides.
bool ThreadCaches::TryChange(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to) {
  uint64_t bits = from.bits();
  if (from.state() != engine::BlockWord::State::kCacheable) {
    return from.state() == engine::BlockWord::State::kLive &&
           word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
  }
  // Mostly this thread has a cache of the lane, and may change the word as its owner.
  if (engine::ThreadCache* const own = Find(from.lane())) {
    if (const std::optional<bool> changed = own->TryChange(word, from, to)) return *changed;
  }
  MutexLock lock(mutex_);
  // The owner of a lane's only cache changes words without an exchange (Freers::kOwner), so it must pause. The owners
  // of several caches use exchanges.
  std::optional<engine::ThreadCache::Pause> pause;
  const auto found = lanes_.find(from.lane());
  if (found != lanes_.end() && found->second.caches.size() == 1) pause.emplace(*found->second.caches.front());
  return word.compare_exchange_strong(bits, to.bits(), std::memory_order_acq_rel);
}

// The caches of other threads are emptied here as well: TakeAll waits for their short moments. Holds `caches` for all
// of them. The pool's own lock is taken afterwards, by the caller.
engine::ReturnedBlocks ThreadCaches::Drain(PoolHandle pool) {
  engine::ReturnedBlocks drained;
  MutexLock lock(mutex_);
  drained.held = OwnHolding(pool).least;
  ForEachLane(by_key_, lanes_, pool, [&](LaneEntry& entry) {
    for (const auto& cache : entry.caches) Append(&drained.blocks, cache->TakeAll());
  });
  drained.held -= OwnHolding(pool).least;
  return drained;
}

// The blocks go to the caller. What the caches have counted stays for the statistics (past_).
void ThreadCaches::CloseLane(LaneEntry& entry, engine::ReturnedBlocks& returned) {
  for (const auto& cache : entry.caches) {
    if (const auto closed = cache->Close()) {
      Append(&returned.blocks, closed->blocks);
      returned.requested_more += closed->requested_more;
    }
    KeepCounts(entry.pool.handle, *cache);
  }
  entry.caches.clear();
}

// kNever is noted under the same hold of the lock, so no thread opens a cache in between.
engine::ReturnedBlocks ThreadCaches::Close(PoolHandle pool, Reopen reopen) {
  engine::ReturnedBlocks returned;
  MutexLock lock(mutex_);
  returned.held = OwnHolding(pool).least;
  if (reopen == Reopen::kNever) closed_.insert(pool);
  ForEachLane(by_key_, lanes_, pool, [&](LaneEntry& entry) {
    mutex_.AssertHeld();
    CloseLane(entry, returned);
  });
  returned.held -= OwnHolding(pool).least;
  return returned;
}

// Nobody has to be told: the next block that the pool serves makes a cache (Publish).
void ThreadCaches::LetReopen(PoolHandle pool) {
  MutexLock lock(mutex_);
  closed_.erase(pool);
}

// No thread uses the stream any more: the program has released it.
engine::ReturnedBlocks ThreadCaches::ForgetStream(PoolHandle pool, StreamKey stream) {
  engine::ReturnedBlocks returned;
  MutexLock lock(mutex_);
  ForgetLane(pool, stream, returned);
  return returned;
}

// `gone` is not used: the pool is destroyed, and its memory goes with it.
void ThreadCaches::ForgetPool(PoolHandle pool) {
  engine::ReturnedBlocks gone;
  MutexLock lock(mutex_);
  for (auto key = by_key_.lower_bound({pool, 0}); key != by_key_.end() && key->first.first == pool;) {
    const StreamKey stream = key++->first.second;
    ForgetLane(pool, stream, gone);
  }
  past_.erase(pool);
  closed_.erase(pool);
}

// The runtime ends, and no pool takes blocks back any more: they stay where they are.
void ThreadCaches::CloseAll() {
  engine::ReturnedBlocks staying;
  MutexLock lock(mutex_);
  for (auto& [lane, entry] : lanes_) {
    closed_.insert(entry.pool.handle);
    CloseLane(entry, staying);
  }
}

// The cache is closed already, so its counts stand still.
void ThreadCaches::KeepCounts(PoolHandle pool, engine::ThreadCache& ended) {
  const engine::ThreadCache::Pause pause(ended);
  Past& past = past_[pool];
  past.statistics += pause.Statistics();
  pause.AddTo(past.counts);
}

// For recordings. One cache after the other, so the counts need not be of one moment.
engine::ClassCounts ThreadCaches::CountClasses(PoolHandle pool) const {
  MutexLock lock(mutex_);
  const auto past = past_.find(pool);
  engine::ClassCounts counts = past == past_.end() ? engine::ClassCounts() : past->second.counts;
  ForEachLane(by_key_, lanes_, pool, [&](const LaneEntry& entry) {
    for (const auto& cache : entry.caches) engine::ThreadCache::Pause(*cache).AddTo(counts);
  });
  return counts;
}

// While the pauses live, owners go to the pool, and wait there for its lock while `meanwhile` has it.
void ThreadCaches::Statistics(PoolHandle pool, FunctionRef<void(const engine::CacheStatistics&)> meanwhile) const {
  engine::CacheStatistics statistics;
  MutexLock lock(mutex_);
  // First pause all caches, then read: so the sums are of one moment.
  std::vector<engine::ThreadCache::Pause> pauses;
  const auto past = past_.find(pool);
  if (past != past_.end()) statistics += past->second.statistics;
  ForEachLane(by_key_, lanes_, pool, [&](const LaneEntry& entry) {
    for (const auto& cache : entry.caches) pauses.emplace_back(*cache);
  });
  for (const engine::ThreadCache::Pause& pause : pauses) statistics += pause.Statistics();
  meanwhile(statistics);
  for (engine::ThreadCache::Pause& pause : pauses) pause.ForgetLeast();
}

size_t ThreadCaches::lanes() const {
  MutexLock lock(mutex_);
  return lanes_.size();
}

// The thread's blocks are freed to their pool as if the program had done it, so they serve other threads.
void ThreadCaches::End(engine::ThreadCache* cache) {
  engine::ReturnedBlocks returned;
  std::shared_ptr<BlockOwner> owner;
  {
    MutexLock lock(mutex_);
    const auto lane = lanes_.find(cache->lane());
    if (lane == lanes_.end()) return;  // forgotten, and closed with it
    LaneEntry& entry = lane->second;
    const auto own = std::ranges::find(entry.caches, cache, [](const auto& other) { return other.get(); });
    if (own == entry.caches.end()) return;  // closed before
    // Before the close, which leaves nothing to look at.
    const engine::Tally held = cache->Look().least;
    if (auto closed = cache->Close()) returned = std::move(*closed);
    returned.held = held;
    KeepCounts(entry.pool.handle, *cache);
    entry.caches.erase(own);
    // The last thread of the lane needs no exchange any more.
    if (entry.caches.size() == 1) entry.caches.front()->SetFreers(engine::Freers::kOwner);
    owner = entry.pool.owner.lock();
  }
  // Without the lock, because the pool's own lock comes after it. A pool that is gone took its memory along.
  if (owner != nullptr) owner->TakeBack(returned);
}

}  // namespace commpool::internal
