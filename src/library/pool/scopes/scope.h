// Plain values that describe scopes, for the scopes and the threads' slots.
#ifndef COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_
#define COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_

#include <compare>
#include <cstdint>

#include "src/library/pool/scopes/plan.h"
#include "src/library/pool/shared/pool_table.h"
#include "src/library/stream/stream_key.h"

namespace commpool::internal {

// Never 0, and never used twice by one table.
using ScopeHandle = uint64_t;

// Whose allocations a scope may catch: this thread's, those on one stream, or everybody's. A scope of a thread lies in
// that thread's stack, the others in the list that all threads read.
enum class ScopeFilter {
  kThread = COMMPOOL_FILTER_THREAD,
  kStream = COMMPOOL_FILTER_STREAM,
  kProcess = COMMPOOL_FILTER_PROCESS
};

// What scopes need to know of an allocation. `stream` is the stream's identity, which a promise does not change
// (StreamName). Runtime makes one for each request that this thread does not know yet.
struct RoutedRequest {
  int device = 0;
  StreamKey stream = 0;
  uint64_t bytes = 0;
};

// When a scope began, as one thread sees it. `shared`: how many shared scopes had begun by then; `own`: then, how many
// of the thread's own were open. Scopes of other threads have no place, because they never catch this thread's
// allocations. Compared by `shared` first: an own scope that began after shared scope 3 is {3, 1}, and so inside of it,
// {3, 0}.
struct ScopePlace {
  uint64_t shared = 0;
  uint64_t own = 0;

  friend auto operator<=>(const ScopePlace&, const ScopePlace&) = default;
};

// Before the first scope, and after the last: the ends of a search.
inline constexpr ScopePlace kOutermost = {};
inline constexpr ScopePlace kInnermost = {UINT64_MAX, UINT64_MAX};

// The pool that serves an allocation, and the scope that caught it, if any. `pool` may be 0: nobody serves. Allocate
// needs the scope itself only after a failure, to hand the request on.
struct CaughtBy {
  ScopeHandle scope = 0;  // 0: none
  ScopePlace place;
  PoolHandle pool = 0;
  Exhaustion exhaustion = Exhaustion::kError;
};

// One open scope of a stream or of the process.
struct SharedScope {
  ScopeHandle handle = 0;
  uint64_t number = 0;   // start order among stream-wide and process-wide scopes, from 1
  StreamKey stream = 0;  // 0: every stream
  ScopePlan plan;

  ScopePlace place() const { return {number, 0}; }
  bool Catches(const RoutedRequest& request) const {
    return (stream == 0 || stream == request.stream) && plan.Catches(request.device, request.bytes);
  }
  CaughtBy caught() const { return {handle, place(), plan.pool, plan.exhaustion}; }
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_POOL_SCOPES_SCOPE_H_
