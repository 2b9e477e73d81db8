// OwnCaches: what one thread knows of its allocations: its caches, and which cache or pool serves a request. Requests
// repeat, so the last answer is kept in a slot that the request's hash finds. Only the thread itself uses it.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "src/library/engine/thread_cache.h"
#include "src/library/pool/shared/own_state.h"
#include "src/library/pool/shared/pool_table.h"
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

}  // namespace commpool::internal
