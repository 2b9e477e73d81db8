// The threads' caches as pools and the runtime use them: the one way down to a cached block, and the one way back.
//
//   down:  TakeRecent (fast path) -> TakeAtOnce (searches) -> Take (told to observers) -> the pool
//   back:  GiveRecent (fast path) -> GiveAtOnce (searches, makes room) -> Give (makes a cache) -> the owner's Free
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

  // Down. A block from a cache that this thread used lately, without a lock, a driver call or any other; 0 where there
  // is none, or somebody watches blocks: then Take does it.
  [[gnu::always_inline]] CUdeviceptr TakeRecent(PoolHandle pool, uint64_t bytes, StreamKey stream) const {
    if (watched_ || bytes - 1 >= engine::kSmallBytes) return 0;
    engine::ThreadCache* const cache = registry_->FindAtOnce(pool, stream);
    return cache == nullptr ? 0 : cache->Take(bytes);
  }
  // The same of the cache that such a request was routed to lately.
  [[gnu::always_inline]] CUdeviceptr TakeRouted(RouteKey key, uint64_t bytes) const {
    if (own_state.caches == nullptr) return 0;
    key.registry = registry_.get();
    engine::ThreadCache* const cache = own_state.caches->FindRouted(key, bytes);
    return cache == nullptr ? 0 : cache->Take(bytes);
  }
  // The pool's cache served such a request, and serves those of `least` to `most` bytes too while the key is the same.
  // REQUIRES: 0 < least and most <= kSmallBytes.
  void Remember(RouteKey key, uint64_t least, uint64_t most, PoolHandle pool, StreamKey stream) const;
  // The same from any cache of this thread.
  CUdeviceptr TakeAtOnce(PoolHandle pool, uint64_t bytes, StreamKey stream) const {
    return watched_ ? 0 : Pop(pool, bytes, stream);
  }
  // The same, and observers are told. 0 where there is none.
  CUdeviceptr Take(PoolHandle pool, const std::string& name, uint64_t bytes, StreamKey stream) const;

  // Back. Whether a cache that this thread used lately has the block now; no lock. Not where somebody watches blocks.
  [[gnu::always_inline]] bool GiveRecent(CUdeviceptr address) const {
    engine::AtomicWord* const word = watched_ ? nullptr : registry_->blocks().Find(address);
    if (word == nullptr) return false;
    const engine::BlockWord block(word->load(std::memory_order_acquire));
    if (block.state() != engine::BlockWord::State::kCacheable) return false;
    engine::ThreadCache* const cache = registry_->FindAtOnce(block.lane());
    return cache != nullptr && cache->GiveAtOnce({address, word}, block);
  }
  // The same of any cache of this thread.
  bool GiveAtOnce(CUdeviceptr address) const {
    return !watched_ && Push(address, [] {});
  }
  // The same; where the thread has no cache of the block's lane it gets one, and a full one gives half of what it has
  // back to the owner.
  bool Give(CUdeviceptr address, BlockOwner& owner) const;

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
  ReservedVector<engine::CachedBlock> Drain(PoolHandle pool) { return registry_->Drain(pool); }
  ReservedVector<engine::CachedBlock> Close(PoolHandle pool, Reopen reopen) { return registry_->Close(pool, reopen); }
  void LetReopen(PoolHandle pool) { registry_->LetReopen(pool); }
  void ForgetPool(PoolHandle pool) { registry_->ForgetPool(pool); }
  ReservedVector<ReturnedBlocks> ForgetStream(StreamKey stream) { return registry_->ForgetStream(stream); }
  void CloseAll() { registry_->CloseAll(); }
  engine::CacheStatistics Statistics(PoolHandle pool, const std::function<void()>& meanwhile) const {
    return registry_->Statistics(pool, meanwhile);
  }
  size_t lanes() const { return registry_->lanes(); }

 private:
  CUdeviceptr Pop(PoolHandle pool, uint64_t bytes, StreamKey stream) const {
    if (bytes - 1 >= engine::kSmallBytes) return 0;
    engine::ThreadCache* const cache = registry_->Find(pool, stream);
    return cache == nullptr ? 0 : cache->Take(bytes);
  }

  engine::LargeWord LargeWordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const word = registry_->blocks().FindLarge(address);
    return engine::LargeWord(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  }

  // Of a live block: whether its word was `from`, and is `to` now. False for one in a cache.
  bool Replace(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);
  Result<uint64_t> WithdrawLarge(CUdeviceptr address);

  // `tell` is called before the block can be served again.
  template <typename Tell>
  bool Push(CUdeviceptr address, Tell tell) const {
    engine::AtomicWord* const word = registry_->blocks().Find(address);
    if (word == nullptr) return false;
    const engine::BlockWord block(word->load(std::memory_order_acquire));
    if (block.state() != engine::BlockWord::State::kCacheable) return false;
    engine::ThreadCache* const cache = registry_->Find(block.lane());
    if (cache == nullptr) return false;
    tell();
    return cache->Give({address, word}, block);
  }

  const MemoryObservers& observers_;
  const bool watched_;  // a copy: the fast path reads it
  // Threads that end later than the runtime still look at it.
  const std::shared_ptr<CacheRegistry> registry_ = std::make_shared<CacheRegistry>();
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_THREAD_CACHES_H_
