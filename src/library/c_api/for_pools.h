// Calls for one pool, or for the pools of several ranks at once: from a program's array of handles to a call on each
// pool.
#ifndef COMMPOOL_SRC_LIBRARY_C_API_FOR_POOLS_H_
#define COMMPOOL_SRC_LIBRARY_C_API_FOR_POOLS_H_

#include <cstddef>
#include <string>

#include "commpool/commpool.h"
#include "src/library/base/function_ref.h"
#include "src/library/base/try.h"
#include "src/library/c_api/boundary.h"
#include "src/library/c_api/structs.h"
#include "src/library/pool/group_calls.h"

namespace commpool::internal {

// A job has a pool for each rank of a thread, and no thread has so many ranks.
inline constexpr size_t kMostPools = 1 << 16;

inline Status CheckPoolCount(size_t count) {
  if (count <= kMostPools) return Status();
  return Invalid("count " + std::to_string(count) + " is more pools than one call takes, " +
                 std::to_string(kMostPools));
}

inline commpool_status ForPools(const commpool_pool* pools, size_t count,
                                FunctionRef<Status(Runtime&, PoolHandles)> call,
                                const char* name = __builtin_FUNCTION()) {
  const auto checked = [&](Runtime& runtime) -> Status {
    if (pools == nullptr) return Invalid("pools is null");
    COMMPOOL_TRY(CheckPoolCount(count));
    return call(runtime, PoolHandles(pools, count));
  };
  return WithRuntime(checked, CallKind::kAny, name);
}

// `passed`: as OnEach.
inline commpool_status ForEachPool(const commpool_pool* pools, size_t count,
                                   FunctionRef<Status(Pool&, size_t place)> call, ncclComm* const* passed = nullptr,
                                   const char* name = __builtin_FUNCTION()) {
  return ForPools(
      pools, count, [&](Runtime& runtime, PoolHandles handles) { return OnEach(runtime, handles, call, passed); },
      name);
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_LIBRARY_C_API_FOR_POOLS_H_
