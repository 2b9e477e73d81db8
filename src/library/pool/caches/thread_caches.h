// ThreadCaches: the caches of all threads, as pools and the runtime use them: the first step of an allocation and a
// free.
//
//   down:  Runtime takes from the cache in the slot  -> TakeFor, which looks for the cache -> the pool
//   back:  Give, to the cache that the block's word names -> GiveOrMakeRoom -> the owner's Free
//
// The steps left of an arrow take no lock and call no function. They serve nobody while an observer watches blocks.
//
// A block's word says whether caches keep it; its address finds the word without a lock. Publish writes the word when a
// pool serves the block. Withdraw ends it when the block is freed to the pool.
//
// A lane is a pair of pool and stream. A thread has a cache for each lane that it uses, and finds it without a lock in
// its own table (OwnCaches). The lock here (rank `caches`) is held to make a cache, to empty the caches of a pool,
// and to end the caches of a thread. Any thread.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "commpool/status.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/mutex.h"
#include "src/library/engine/block_map.h"
#include "src/library/engine/thread_cache.h"
#include "src/library/pool/shared/memory_observer.h"
#include "src/library/pool/shared/own_state.h"
#include "src/library/pool/shared/tables.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

class ThreadCaches;

// What an allocation names: a pool, a device, or scopes. A value of one word, so that a slot's route is compared and
// hashed without a look behind a pointer. Runtime makes one for each call.
class Target {
 public:
  enum class Kind : uint64_t {
    kDevice,  // the scopes that catch it, else the device's default pool
    kScopes,  // the scopes that catch it, or nobody
    kPool,
  };

  constexpr Target() = default;
  static constexpr Target Device(int device) { return {static_cast<uint64_t>(int64_t{device}), Kind::kDevice}; }
  static constexpr Target ScopesOf(int device) { return {static_cast<uint64_t>(int64_t{device}), Kind::kScopes}; }
  static constexpr Target Pool(PoolHandle pool) { return {pool, Kind::kPool}; }

  constexpr Kind kind() const { return static_cast<Kind>(word_ & 3); }
  // For a target that names a device; negative: the stream's.
  constexpr int device() const { return static_cast<int>(static_cast<int64_t>(word_) >> 2); }
  // Only for a target of kind kPool.
  constexpr PoolHandle pool() const { return word_ >> 2; }
  // All of the target, to hash it.
  constexpr uint64_t word() const { return word_; }

  friend constexpr bool operator==(const Target&, const Target&) = default;

 private:
  constexpr Target(uint64_t value, Kind kind) : word_(value << 2 | static_cast<uint64_t>(kind)) {}

  // The kind in the two lowest bits, the handle or device above them.
  uint64_t word_ = 0;
};

// Everything that decides who serves an allocation, but its size. Where scopes change the route changes too, so nobody
// has to tell a slot that it is out of date.
struct Route {
  // Whose caches: a process may have several runtimes, as tests do.
  const ThreadCaches* all = nullptr;
  Target target;
  uint64_t stream = 0;  // the handle: on another thread it may mean another stream
  uint64_t scopes = 0;  // a count of scopes that began or ended and may matter to this thread

  friend bool operator==(const Route&, const Route&) = default;
};

// Remembers who serves a route's requests of `least` to `least + span` bytes. Runtime enters the pool and the stream,
// ThreadCaches the cache.
struct alignas(64) Slot {
  Route route;
  uint64_t least = 0;
  uint64_t span = 0;
  engine::ThreadCache* cache = nullptr;       // null where there is none, or an observer must see each block
  std::shared_ptr<const ThreadCaches> owner;  // of the route: kept alive, so that no other object gets its address
  std::weak_ptr<Pool> pool;                   // weak: the pool may have lost its handle meanwhile
  PoolHandle server = 0;                      // the pool's handle; 0 where nobody serves
  StreamKey stream = 0;                       // the stream that the handle meant then: it may mean another one now

  // One comparison for both ends: below `least` the difference wraps round and is larger than any span.
  bool Has(const Route& asked, uint64_t bytes) const { return route == asked && bytes - least <= span; }
};

// One cache of this thread, and whose memory it keeps. A copy of what the lane's entry says, so that a search here
// takes no lock. `all` is null in an empty place.
struct OwnCache {
  const ThreadCaches* all = nullptr;
  PoolHandle pool = 0;
  StreamKey stream = 0;
  engine::ThreadCache* cache = nullptr;

  // Lanes are numbers of one ThreadCaches, so both must match.
  bool IsOf(const ThreadCaches* asked, engine::Lane lane) const {
    return cache != nullptr && cache->lane() == lane && all == asked;
  }
};

// What one thread knows of its allocations: its caches, and which cache or pool serves a request. Requests repeat, so
// the last answer is kept in a slot that the request's hash finds.
//
// `own_state` points to this thread's object. ThreadCaches and Runtime use it on this thread only, so it needs no lock.
// It is destroyed with the thread, and its caches give their blocks back then. It owns the slots, and a share of each
// cache: the pools may empty or close a cache at any time, but it stays there to be looked at.
class OwnCaches {
 public:
  OwnCaches();
  ~OwnCaches();

  // Null where the thread does not know who serves the request.
  Slot* FindSlot(const Route& route, uint64_t bytes) {
    auto& [newer, older] = slots_[PlaceOf(route)];
    if (newer.Has(route, bytes)) [[likely]]
      return &newer;
    return older.Has(route, bytes) ? &older : nullptr;
  }
  // A slot for a route that has none, in place of the oldest. ThreadCaches::Remember overwrites it.
  Slot& SlotFor(const Route& route) {
    auto& [newer, older] = slots_[PlaceOf(route)];
    older = std::move(newer);
    return newer;
  }

  // Looks only where the cache was found last; null does not mean that there is none: ask Find.
  engine::ThreadCache* FindAtOnce(const ThreadCaches* all, engine::Lane lane) const {
    const OwnCache& recent = recent_[lane % kRecent];
    return recent.IsOf(all, lane) ? recent.cache : nullptr;
  }
  // Searches all caches of this thread, and notes what it finds for FindAtOnce. Null: this thread has none of the lane.
  engine::ThreadCache* Find(const ThreadCaches* all, engine::Lane lane);
  // For a caller that does not know the lane.
  engine::ThreadCache* Find(const ThreadCaches* all, PoolHandle pool, StreamKey stream) const;

  // What this thread's caches of a pool hold. The pool's peaks leave it out. Each look begins a new low.
  engine::Holding HoldingOf(const ThreadCaches* all, PoolHandle pool) const;

  // Enters a new cache of this thread, and keeps it and its ThreadCaches alive until it is dropped. Drops caches that
  // have ended meanwhile.
  void Add(const OwnCache& own, std::shared_ptr<ThreadCaches> all, std::shared_ptr<engine::ThreadCache> cache);

 private:
  static constexpr size_t kPlaces = 32;
  static constexpr size_t kRecent = 64;

  // Handles are mostly addresses, which differ above their lowest four bits.
  static size_t PlaceOf(const Route& route) {
    return (route.target.word() * 31 + route.stream + (route.stream >> 4)) % kPlaces;
  }

  // Two routes have room in one place: a pool's frees have a route, too, and streams' addresses are chance.
  std::array<std::array<Slot, 2>, kPlaces> slots_;
  std::array<OwnCache, kRecent> recent_;  // in order of their lanes
  // Two lists in the same order: what a search reads, and what keeps it alive.
  std::vector<OwnCache> caches_;
  std::vector<std::pair<std::shared_ptr<ThreadCaches>, std::shared_ptr<engine::ThreadCache>>> owners_;
};

// Makes this thread's object if it has none. Null while the thread ends, or runs a user's function.
OwnCaches* MakeOwnCaches();

// Who may take a block when it is freed.
enum class Caching {
  kNo,   // only the pool frees the block
  kYes,  // threads' caches may keep it
};

// What a cache knows of the pool whose blocks it keeps. BlockStore makes one for each block that it hands out.
struct CachedPool {
  PoolHandle handle = 0;
  std::weak_ptr<BlockOwner> owner;
  uint64_t alignment = 0;
  const std::atomic<bool>* broken = nullptr;  // set where the device is lost; lives as long as the owner
};

// Shared: a thread that ends after the runtime still reads it, and calls End. Owns the block map, and the books of
// lanes; the caches belong to their threads as well. RuntimeParts makes it. Runtime calls the first steps; BlockStore,
// for its pool, those that publish, empty and close.
class ThreadCaches : public std::enable_shared_from_this<ThreadCaches> {
 public:
  // The observer hears what caches serve and take back, as long as the runtime lives.
  explicit ThreadCaches(const MemoryObserver& observer) : observer_(observer), watched_(observer.watches_blocks()) {}

  // The slot of a request; null where this thread does not know who serves it. The answer may be out of date in one
  // way: a handle that came back as another stream's. The caller compares Slot::stream.
  [[gnu::always_inline]] Slot* FindSlot(Route route, uint64_t bytes) const {
    if (own_state.caches == nullptr) return nullptr;
    route.all = this;
    return own_state.caches->FindSlot(route, bytes);
  }
  // Remembers that the pool serves requests of `least` to `most` bytes by this route. Null where the thread can
  // remember nothing.
  Slot* Remember(Route route, StreamKey stream, uint64_t least, uint64_t most, PoolHandle server) const;

  // Down: a block from any cache of this thread for the slot's pool. 0 where there is none. Notes the cache in the
  // slot, so that the next request skips this call. `pool_name`: for the observer.
  CUdeviceptr TakeFor(Slot& slot, const std::string& pool_name, uint64_t bytes, StreamKey stream) const;

  // Back: gives the block to a cache that this thread used lately. Returns false where none takes it.
  [[gnu::always_inline]] bool Give(CUdeviceptr address) const {
    if (watched_ || own_state.caches == nullptr) return false;
    engine::AtomicWord* const word = blocks_.Find(address);
    if (word == nullptr) return false;
    const engine::BlockWord block(word->load(std::memory_order_acquire));
    if (block.state() != engine::BlockWord::State::kCacheable) return false;
    engine::ThreadCache* const cache = own_state.caches->FindAtOnce(this, block.lane());
    return cache != nullptr && cache->GiveAtOnce({address, word}, block);
  }
  // Tries every cache of this thread. Without a cache of the block's lane it makes one; a full cache gives half of its
  // blocks back to the owner. Returns false where the block must be freed to its owner: such as one that is large, or
  // that other streams used. Takes the lock, and then calls the owner without it. Runtime::Free calls it, where Give
  // said no.
  bool GiveOrMakeRoom(CUdeviceptr address, BlockOwner& owner);

  // Called when a pool serves a small block: `range` is the block, `requested` the size asked for. The block stays
  // uncached where the host has no memory for the cache or the word.
  void Publish(const CachedPool& pool, const engine::SegmentRange& range, uint64_t requested, StreamKey stream,
               Caching caching);
  // Publish for a large block, which no cache may keep.
  void PublishLarge(CUdeviceptr address, PoolHandle pool) {
    engine::AtomicWord* const word = blocks_.MakeLarge(address);
    if (word != nullptr) word->store(engine::LargeWord::Live(address, pool).bits(), std::memory_order_release);
  }
  // Ends the word of a block that is freed to its pool. Returns the requested size; 0 where only the engine knows it;
  // nothing where the block was freed already. Of several threads that free one published block, one gets through here.
  std::optional<uint64_t> Withdraw(CUdeviceptr address) {
    engine::AtomicWord* const large = blocks_.FindLarge(address);
    uint64_t bits = large == nullptr ? 0 : large->load(std::memory_order_acquire);
    if (!engine::LargeWord(bits).IsOf(address)) return WithdrawSmall(address);
    // Only the pool frees a large block, so one exchange tells which of two frees was first.
    const bool first = large->compare_exchange_strong(bits, 0, std::memory_order_acq_rel);
    return first ? std::optional<uint64_t>(0) : std::nullopt;
  }
  static Status FreedAlready(CUdeviceptr address);
  // From now on no cache may take the live block. Returns the requested size as Withdraw does; kNotFound where the
  // block was freed already. For record_stream, shares and watched copies: a free of such a block must reach the pool.
  Result<uint64_t> MakeUncacheable(CUdeviceptr address);

  // The word of the block at the address; kNone where nothing was published.
  engine::BlockWord WordOf(CUdeviceptr address) const {
    const engine::AtomicWord* const large_word = blocks_.FindLarge(address);
    const engine::LargeWord large(large_word == nullptr ? 0 : large_word->load(std::memory_order_acquire));
    if (large.IsOf(address)) return engine::BlockWord::Live(large.owner());
    const engine::AtomicWord* const word = blocks_.Find(address);
    return engine::BlockWord(word == nullptr ? 0 : word->load(std::memory_order_acquire));
  }

  // Takes all blocks out of a pool's caches, of all threads. The caller has to give them to the pool
  // (BlockOwner::TakeBack): until then the engine counts them as live. The caches stay open. For a pool that lacks
  // memory, or is trimmed.
  engine::ReturnedBlocks Drain(PoolHandle pool);
  // Drain, and ends the caches. kNever: from now on all blocks are freed to the pool. kAtNextUse: a thread that serves
  // from the pool again makes a new cache.
  enum class Reopen { kAtNextUse, kNever };
  engine::ReturnedBlocks Close(PoolHandle pool, Reopen reopen);
  // Ends a kNever: threads may make caches of the pool again. For a pool that wakes.
  void LetReopen(PoolHandle pool);
  // Call it before the stream's handle means another stream: ends and forgets the pool's lane of the stream.
  engine::ReturnedBlocks ForgetStream(PoolHandle pool, StreamKey stream);
  // Call it when the pool is gone. The blocks in its caches go with its memory.
  void ForgetPool(PoolHandle pool);
  // Sums all caches of the pool at one moment, and calls `meanwhile` at that moment. `meanwhile` may take the pool's
  // lock, to read the pool's own statistics of the same moment. A new low of what the caches hold starts here.
  void Statistics(PoolHandle pool, FunctionRef<void(const engine::CacheStatistics&)> meanwhile) const;
  // What the pool's caches have handed out and hold, by size class.
  engine::ClassCounts CountClasses(PoolHandle pool) const;

  // The blocks and bytes in this thread's caches of the pool.
  engine::Holding OwnHolding(PoolHandle pool) const {
    return own_state.caches == nullptr ? engine::Holding() : own_state.caches->HoldingOf(this, pool);
  }
  // Ends every cache; the blocks in them stay where they are. The runtime ends: frees that come later find no cache.
  void CloseAll();

  // The lane of a pool and stream, made at its first use. Nobody tells when a stream without a promise is gone, so a
  // pool keeps only its newest lanes of such streams; `returned` gets the blocks of a lane that ends here.
  engine::Lane LaneOf(const CachedPool& pool, StreamKey stream, engine::ReturnedBlocks* returned);
  // The number of lanes that are not forgotten.
  size_t lanes() const;
  // Gives this thread a cache of the lane, unless it has one, the lane belongs to another stream by now, or the thread
  // ends. Takes the lock where it makes one.
  void Open(engine::Lane lane);
  // This thread's cache; null where it has none. Takes no lock.
  engine::ThreadCache* Find(PoolHandle pool, StreamKey stream) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, pool, stream);
  }
  engine::ThreadCache* Find(engine::Lane lane) const {
    return own_state.caches == nullptr ? nullptr : own_state.caches->Find(this, lane);
  }
  // Takes a live block away from all caches, so that only its pool may free it: changes its word from `from` to `to`.
  // Returns whether it did; false for a block in a cache. If several threads try, or free the block meanwhile, one of
  // them succeeds.
  bool TryChange(engine::AtomicWord& word, engine::BlockWord from, engine::BlockWord to);
  // Called when a thread ends: its cache ends, and the blocks in it go back to the owner. ~OwnCaches calls it on the
  // thread that ends, which may be after the runtime's end.
  void End(engine::ThreadCache* cache);

 private:
  // The caches of a lane, one for each thread that uses it. Found by the lane's number, which a block's word holds, or
  // by pool and stream (by_key_). A cache stays in it until the lane closes or its thread ends.
  struct LaneEntry {
    CachedPool pool;
    StreamKey stream = 0;
    std::vector<std::shared_ptr<engine::ThreadCache>> caches;
  };

  // What the ended caches of a pool have counted. Statistics are sums over all time, so what a cache has counted must
  // outlive the cache.
  struct Past {
    engine::CacheStatistics statistics;
    engine::ClassCounts counts;
  };

  std::optional<uint64_t> WithdrawSmall(CUdeviceptr address);
  // Adds the counts of a cache that has ended to those of its pool.
  void KeepCounts(PoolHandle pool, engine::ThreadCache& ended) COMMPOOL_REQUIRES(mutex_);
  // Ends all caches of a lane; `returned` gets their blocks.
  void CloseLane(LaneEntry& entry, engine::ReturnedBlocks& returned) COMMPOOL_REQUIRES(mutex_);
  // CloseLane, and nobody finds the lane any more.
  void ForgetLane(PoolHandle pool, StreamKey stream, engine::ReturnedBlocks& returned) COMMPOOL_REQUIRES(mutex_);

  // RuntimeParts owns it. A thread that ends after the runtime calls End, which does not use it.
  const MemoryObserver& observer_;
  const bool watched_;  // a copy: the fast path reads it
  // Finds the word of a published block of any pool of the runtime, without a lock.
  engine::BlockMap blocks_;
  mutable Mutex mutex_{LockRank::kCaches};
  // Counts up, so a word that names a forgotten lane finds nothing. 0 stands for none.
  engine::Lane next_lane_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<engine::Lane, LaneEntry> lanes_ COMMPOOL_GUARDED_BY(mutex_);
  std::map<std::pair<PoolHandle, StreamKey>, engine::Lane> by_key_ COMMPOOL_GUARDED_BY(mutex_);
  // An entry from the end of a pool's first cache until ForgetPool.
  std::map<PoolHandle, Past> past_ COMMPOOL_GUARDED_BY(mutex_);
  std::set<PoolHandle> closed_ COMMPOOL_GUARDED_BY(mutex_);  // for good
};

}  // namespace commpool::internal
