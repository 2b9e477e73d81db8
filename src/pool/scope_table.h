// Open scopes: where an allocation is routed. Any thread.
//
// A thread's own scopes are its own stack, found without a lock; scopes of a stream or of the process are few and
// shared. Of all that catch an allocation the one begun last wins.
#ifndef COMMPOOL_SRC_POOL_SCOPE_TABLE_H_
#define COMMPOOL_SRC_POOL_SCOPE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "commpool/commpool.h"
#include "commpool/status.h"
#include "src/base/host_reserve.h"
#include "src/base/mutex.h"
#include "src/pool/pool.h"

namespace commpool::internal {

using ScopeHandle = uint64_t;

enum class ScopeFilter { kThread, kStream, kProcess };

// Sizes that a scope catches: both ends are in.
struct SizeRange {
  uint64_t least = 0;
  uint64_t most = UINT64_MAX;

  bool Has(uint64_t bytes) const { return bytes - least <= most - least; }  // REQUIRES: least <= most
};

// What becomes of a request that the scope's pool has no memory for.
enum class Exhaustion { kError, kNextScope };

struct ScopeRequest {
  std::shared_ptr<Pool> pool;
  ScopeFilter filter = ScopeFilter::kThread;
  StreamKey stream = 0;  // of a kStream filter
  SizeRange sizes = {};
  Exhaustion exhaustion = Exhaustion::kError;
};

// An allocation as scopes see it.
struct RoutedRequest {
  int device = 0;
  StreamKey stream = 0;
  uint64_t bytes = 0;
};

// A scope that catches an allocation.
struct CaughtBy {
  ScopeHandle scope = 0;
  std::shared_ptr<Pool> pool;
  Exhaustion exhaustion = Exhaustion::kError;
};

class ScopeTable {
 public:
  // kInvalidArgument for a process-wide scope on a symmetric pool, whose allocations would come in any order (rule 4),
  // and for sizes whose least is above their most.
  Result<ScopeHandle> Begin(ScopeRequest request);

  // kNotFound for one that has ended; kFailedPrecondition for a thread's scope on another thread, or not the innermost.
  Status End(ScopeHandle scope);

  // The pool that this thread's own scopes route an allocation to, 0 for none; nothing where scopes of a stream or of
  // the process are open, and Route must decide. No lock.
  std::optional<PoolHandle> RouteAtOnce(int device, uint64_t bytes) const;

  // Of the scopes that began before `inner` and catch the allocation, the one begun last; nothing where none does.
  std::optional<CaughtBy> Route(const RoutedRequest& request, ScopeHandle inner = kInnermost) const;

  static constexpr ScopeHandle kInnermost = UINT64_MAX;

 private:
  struct Entry {
    ScopeRequest request;
    std::thread::id owner;
  };

  // The same, of this thread's own scopes alone.
  std::optional<CaughtBy> RouteToOwn(const RoutedRequest& request, ScopeHandle inner) const;
  Status EndThreadScope(ScopeHandle scope) COMMPOOL_REQUIRES(mutex_);

  mutable Mutex mutex_{LockRank::kPoolTable};
  ScopeHandle next_ COMMPOOL_GUARDED_BY(mutex_) = 1;
  ReservedMap<ScopeHandle, Entry> open_ COMMPOOL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> shared_scopes_{0};  // of streams and of the process: 0 lets Route skip the lock
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SCOPE_TABLE_H_
