// One thread's knowledge of its allocations: its caches, and which of them and which pool serve a request. Requests
// mostly repeat, so the last answer is kept at the place of the request's hash. For its own thread only.
#ifndef COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_
#define COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "src/base/host_reserve.h"
#include "src/engine/thread_cache.h"
#include "src/pool/shared/own_state.h"
#include "src/pool/shared/pool_table.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

class ThreadCaches;

// The target that an allocation names.
class Target {
 public:
  enum class Kind : uint64_t {
    kDevice,  // its scopes, else its default pool
    kScopes,  // its scopes alone
    kPool,
  };

  constexpr Target() = default;
  static constexpr Target Device(int device) { return {static_cast<uint64_t>(int64_t{device}), Kind::kDevice}; }
  static constexpr Target ScopesOf(int device) { return {static_cast<uint64_t>(int64_t{device}), Kind::kScopes}; }
  static constexpr Target Pool(PoolHandle pool) { return {pool, Kind::kPool}; }

  constexpr Kind kind() const { return static_cast<Kind>(word_ & 3); }
  // Of those that name one; negative for the stream's own.
  constexpr int device() const { return static_cast<int>(static_cast<int64_t>(word_) >> 2); }
  constexpr PoolHandle pool() const { return word_ >> 2; }
  constexpr uint64_t word() const { return word_; }

  friend constexpr bool operator==(const Target&, const Target&) = default;

 private:
  constexpr Target(uint64_t value, Kind kind) : word_(value << 2 | static_cast<uint64_t>(kind)) {}

  uint64_t word_ = 0;
};

// All that decides who serves an allocation, except its size.
struct Route {
  const ThreadCaches* all = nullptr;
  Target target;
  uint64_t stream = 0;  // a handle, as this thread means it
  uint64_t scopes = 0;  // how often scopes have begun and ended that may matter to it

  friend bool operator==(const Route&, const Route&) = default;
};

// Who serves what comes by a route, in sizes of `least` to `span` bytes more.
struct alignas(64) Slot {
  Route route;
  uint64_t least = 0;
  uint64_t span = 0;
  engine::ThreadCache* cache = nullptr;       // null where there is none, or none may serve unseen
  std::shared_ptr<const ThreadCaches> owner;  // of the route: kept, so that no other gets its address
  std::weak_ptr<Pool> pool;                   // none is kept alive: it may have lost its handle since
  PoolHandle server = 0;                      // its handle; 0 where nobody serves
  StreamKey stream = 0;                       // what the route's handle meant: another stream may have it by now

  bool Has(const Route& asked, uint64_t bytes) const { return route == asked && bytes - least <= span; }
};

struct OwnCache {
  const ThreadCaches* all = nullptr;
  PoolHandle pool = 0;
  StreamKey stream = 0;
  engine::ThreadCache* cache = nullptr;

  bool IsOf(const ThreadCaches* asked, engine::Lane lane) const {
    return cache != nullptr && cache->lane() == lane && all == asked;
  }
};

class OwnCaches {
 public:
  OwnCaches();
  ~OwnCaches();

  // Null where the thread does not know who serves it.
  Slot* FindSlot(const Route& route, uint64_t bytes) {
    Slot& slot = slots_[PlaceOf(route)];
    return slot.Has(route, bytes) ? &slot : nullptr;
  }
  // The place of a route, whoever has it now.
  Slot& SlotFor(const Route& route) { return slots_[PlaceOf(route)]; }

  // Where it was found lately; else null, and Find finds it.
  engine::ThreadCache* FindAtOnce(const ThreadCaches* all, engine::Lane lane) const {
    const OwnCache& recent = recent_[lane % kRecent];
    return recent.IsOf(all, lane) ? recent.cache : nullptr;
  }
  engine::ThreadCache* Find(const ThreadCaches* all, engine::Lane lane);
  engine::ThreadCache* Find(const ThreadCaches* all, PoolHandle pool, StreamKey stream) const;

  // What the caches of a pool hold.
  engine::Holding HoldingOf(const ThreadCaches* all, PoolHandle pool) const;

  void Add(const OwnCache& own, std::shared_ptr<ThreadCaches> all, std::shared_ptr<engine::ThreadCache> cache);

 private:
  static constexpr size_t kSlots = 64;
  static constexpr size_t kRecent = 64;

  static size_t PlaceOf(const Route& route) {
    return (route.target.word() * 31 + route.stream + (route.stream >> 4)) % kSlots;
  }

  // Forgets those of pools, streams and runtimes that are gone.
  void DropClosed();

  std::array<Slot, kSlots> slots_;
  std::array<OwnCache, kRecent> recent_;  // by lane
  ReservedVector<OwnCache> caches_;
  ReservedVector<std::pair<std::shared_ptr<ThreadCaches>, std::shared_ptr<engine::ThreadCache>>> owners_;
};

// Makes this thread's where there are none yet. Null while the thread ends, or runs a user's function.
OwnCaches* MakeOwnCaches();

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_CACHES_OWN_CACHES_H_
