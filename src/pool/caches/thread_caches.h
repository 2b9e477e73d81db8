// The threads' caches as pools and the runtime use them: the one way down to a cached block, and the one way back.
//
//   down:  TakeAtOnce (fast path) -> Take (told to observers) -> the pool
//   back:  GiveAtOnce (fast path) -> Give (makes a cache, or room in one) -> the owner's Free
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

  // Down. A block from this thread's cache, without a lock or a driver call; 0 where there is none, or somebody watches
  // blocks: then Take does it.
  CUdeviceptr TakeAtOnce(PoolHandle pool, uint64_t bytes, StreamKey stream) const {
    return watched_ ? 0 : Pop(pool, bytes, stream);
  }
  // The same, and observers are told. 0 where there is none.
  CUdeviceptr Take(PoolHandle pool, const std::string& name, uint64_t bytes, StreamKey stream) const;

  // Back. Whether this thread's cache has the block now; no lock. Not where somebody watches blocks.
  bool GiveAtOnce(CUdeviceptr address) const {
    return !watched_ && Push(address, [] {});
  }
  // The same; where the thread has no cache of the block's lane it gets one, and a full one gives half of what it has
  // back to the owner.
  bool Give(CUdeviceptr address, BlockOwner& owner) const;

  // The range's blocks can be published from now on.
  void Cover(const engine::SegmentRange& range) { registry_->blocks().Cover(range); }

  // A block that a pool serves: `range` is the block, `requested` what was asked for.
  // Where the thread's cache cannot be made the block is not cached.
  void Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested, StreamKey stream,
               Caching caching);
  // The same for one that no cache may take.
  void PublishLive(CUdeviceptr address, PoolHandle pool) {
    engine::AtomicWord* const word = registry_->blocks().Find(address);
    if (word != nullptr) word->store(engine::BlockWord::Live(pool).bits(), std::memory_order_release);
  }
  // The pool that only its lock may free the live block to; 0 where the word does not say.
  PoolHandle OwnerOf(CUdeviceptr address) const {
    const engine::BlockWord word = WordOf(address);
    return word.state() == engine::BlockWord::State::kLive ? word.owner() : 0;
  }
  // Of a block that its pool has taken back.
  void Forget(CUdeviceptr address) {
    engine::AtomicWord* const word = registry_->blocks().Find(address);
    if (word != nullptr) word->store(0, std::memory_order_release);
  }
  // The end of a block that is freed to its pool; kNotFound where it was freed already. Returns what was asked for it,
  // 0 where the word does not say: then the engine does.
  Result<uint64_t> Withdraw(CUdeviceptr address);
  // A live block may not go to a cache any more; kNotFound where it was freed. Returns as Withdraw.
  Result<uint64_t> MakeUncacheable(CUdeviceptr address);

  // What the caches know of the block at the address now; kNone where it never was for a cache.
  engine::BlockWord WordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const word = registry_->blocks().Find(address);
    return word == nullptr ? engine::BlockWord() : engine::BlockWord(word->load(std::memory_order_acquire));
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
  [[gnu::always_inline]] CUdeviceptr Pop(PoolHandle pool, uint64_t bytes, StreamKey stream) const {
    if (bytes - 1 >= engine::kSmallBytes) return 0;
    engine::ThreadCache* const cache = registry_->Find(pool, stream);
    return cache == nullptr ? 0 : cache->Take(bytes);
  }

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
