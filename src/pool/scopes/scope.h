// Plain values that describe scopes, for the scopes and the threads' slots.
#ifndef COMMPOOL_SRC_POOL_SCOPES_SCOPE_H_
#define COMMPOOL_SRC_POOL_SCOPES_SCOPE_H_

#include <compare>
#include <cstdint>

#include "src/pool/scopes/plan.h"
#include "src/pool/shared/pool_table.h"
#include "src/stream/stream_key.h"

namespace commpool::internal {

using ScopeHandle = uint64_t;

enum class ScopeFilter {
  kThread = COMMPOOL_FILTER_THREAD,
  kStream = COMMPOOL_FILTER_STREAM,
  kProcess = COMMPOOL_FILTER_PROCESS
};

// What scopes need to know of an allocation.
struct RoutedRequest {
  int device = 0;
  StreamKey stream = 0;
  uint64_t bytes = 0;
};

// When a scope began, as one thread sees it. `shared`: how many shared scopes had begun by then; `own`: then, how many
// of the thread's own were open. Scopes of other threads have no place, because they never catch this thread's
// allocations.
struct ScopePlace {
  uint64_t shared = 0;
  uint64_t own = 0;

  friend auto operator<=>(const ScopePlace&, const ScopePlace&) = default;
};

inline constexpr ScopePlace kOutermost = {};
inline constexpr ScopePlace kInnermost = {UINT64_MAX, UINT64_MAX};

// The pool that serves an allocation, and the scope that caught it, if any.
struct CaughtBy {
  ScopeHandle scope = 0;  // 0: none
  ScopePlace place;
  PoolHandle pool = 0;
  Exhaustion exhaustion = Exhaustion::kError;
};

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SCOPES_SCOPE_H_
