// The threads' caches as pools and the runtime use them: the first rung of an allocation, and of a free.
//
//   down:  Take, from the cache in the thread's slot  -> TakeFor, which looks for the cache -> the pool
//   back:  Give, to the cache that the block's word names -> GiveOrMakeRoom -> the owner's Free
//
// What is left of the arrows takes no lock, calls nobody, and serves nobody where somebody watches blocks.
//
// A block of a size that caches keep says so in its word, which its address finds without a lock: Publish writes it
// when a pool serves the block, Withdraw ends it when the block is freed to the pool. Any thread.
#ifndef COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_
#define COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "commpool/status.h"
#include "src/pool/caches/cache_registry.h"
#include "src/pool/shared/memory_observer.h"

namespace commpool::internal {

enum class Caching {
  kNo,   // only the pool frees the block
  kYes,  // threads' caches may keep it
};

class ThreadCaches {
 public:
  using Reopen = CacheRegistry::Reopen;

  explicit ThreadCaches(const MemoryObservers& observers)
      : observers_(observers), watched_(observers.watching_blocks()) {}

  // The slot of such a request; null where this thread does not know who serves it.
  [[gnu::always_inline]] Slot* FindSlot(Route route, uint64_t bytes) const {
    if (own_state.caches == nullptr) return nullptr;
    route.registry = registry_.get();
    return own_state.caches->FindSlot(route, bytes);
  }
  // Such requests of `least` to `most` bytes are served by the pool as long as the route stays the same. Null where the
  // thread can keep nothing.
  Slot* Remember(Route route, uint64_t least, uint64_t most, PoolHandle server) const;

  // Down. 0 where the slot has no cache, or that has no such block.
  [[gnu::always_inline]] CUdeviceptr Take(const Route& route, uint64_t bytes) const {
    const Slot* const slot = FindSlot(route, bytes);
    return slot == nullptr || slot->cache == nullptr ? 0 : slot->cache->Take(bytes);
  }
  // The same from whatever cache this thread has of the slot's pool; observers are told.
  CUdeviceptr TakeFor(Slot& slot, const std::string& pool_name, uint64_t bytes, StreamKey stream) const;

  // Back. Whether a cache that this thread used lately has the block now.
  [[gnu::always_inline]] bool Give(CUdeviceptr address) const {
    engine::AtomicWord* const word = watched_ ? nullptr : registry_->blocks().Find(address);
    if (word == nullptr) return false;
    const engine::BlockWord block(word->load(std::memory_order_acquire));
    if (block.state() != engine::BlockWord::State::kCacheable) return false;
    engine::ThreadCache* const cache = registry_->FindAtOnce(block.lane());
    return cache != nullptr && cache->GiveAtOnce({address, word}, block);
  }
  // The same of any cache of this thread. Where it has none of the block's lane it gets one, and a full one gives half
  // of what it has back to the owner; observers are told.
  bool GiveOrMakeRoom(CUdeviceptr address, BlockOwner& owner) const;

  // A block that a pool serves: `range` is the block, `requested` what was asked for.
  // Where the thread's cache, or the block's word, cannot be made the block is not cached.
  void Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested, StreamKey stream,
               Caching caching);
  // The same for a large one.
  void PublishLarge(CUdeviceptr address, PoolHandle pool) {
    engine::AtomicWord* const word = registry_->blocks().MakeLarge(address);
    if (word != nullptr) word->store(engine::LargeWord::Live(address, pool).bits(), std::memory_order_release);
  }
  // Of a block that its pool has taken back.
  void Forget(CUdeviceptr address);
  // The end of a block that is freed to its pool; kNotFound where it was freed already. Returns what was asked for it,
  // 0 where the word does not say: then the engine does.
  Result<uint64_t> Withdraw(CUdeviceptr address);
  // A live block may not go to a cache any more; kNotFound where it was freed. Returns as Withdraw.
  Result<uint64_t> MakeUncacheable(CUdeviceptr address);

  // What is known of the block at the address now; kNone where nothing was published.
  engine::BlockWord WordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const word = registry_->blocks().Find(address);
    const engine::BlockWord small(word == nullptr ? 0 : word->load(std::memory_order_acquire));
    if (small.state() != engine::BlockWord::State::kNone) return small;
    const engine::LargeWord large = LargeWordOf(address);
    return large.IsOf(address) ? engine::BlockWord::Live(large.owner()) : small;
  }

  // Of one pool, all threads: see CacheRegistry.
  engine::ReturnedBlocks Drain(PoolHandle pool) { return registry_->Drain(pool); }
  engine::ReturnedBlocks Close(PoolHandle pool, Reopen reopen) { return registry_->Close(pool, reopen); }
  void LetReopen(PoolHandle pool) { registry_->LetReopen(pool); }
  void ForgetPool(PoolHandle pool) { registry_->ForgetPool(pool); }
  engine::ReturnedBlocks ForgetStream(PoolHandle pool, StreamKey stream) {
    return registry_->ForgetStream(pool, stream);
  }
  void CloseAll() { registry_->CloseAll(); }
  void Statistics(PoolHandle pool, const CacheRegistry::Meanwhile& meanwhile) const {
    registry_->Statistics(pool, meanwhile);
  }
  // Of this thread.
  engine::Holding OwnHolding(PoolHandle pool) const { return registry_->OwnHolding(pool); }
  size_t lanes() const { return registry_->lanes(); }

 private:
  engine::LargeWord LargeWordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const word = registry_->blocks().FindLarge(address);
    return engine::LargeWord(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  }

  // Of a live block: whether its word was `from`, and is `to` now. False for one in a cache.
  bool Replace(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);
  Result<uint64_t> WithdrawLarge(CUdeviceptr address);

  const MemoryObservers& observers_;
  const bool watched_;  // a copy: the fast path reads it
  // Threads that end later than the runtime still look at it.
  const std::shared_ptr<CacheRegistry> registry_ = std::make_shared<CacheRegistry>();
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_
