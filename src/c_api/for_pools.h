// Calls for one pool, or for the pools of several ranks at once: from a program's array of handles to a call on each
// pool.
#ifndef COMMPOOL_SRC_C_API_FOR_POOLS_H_
#define COMMPOOL_SRC_C_API_FOR_POOLS_H_

#include <cstddef>

#include "commpool/commpool.h"
#include "src/base/function_ref.h"
#include "src/c_api/boundary.h"
#include "src/c_api/structs.h"
#include "src/pool/group_calls.h"

namespace commpool::internal {

inline commpool_status ForPools(const commpool_pool* pools, size_t count,
                                FunctionRef<Status(Runtime&, PoolHandles)> call) {
  return WithRuntime([&](Runtime& runtime) {
    if (pools == nullptr) return Invalid("pools is null");
    return call(runtime, PoolHandles(pools, count));
  });
}

// `passed`: as OnEach.
inline commpool_status ForEachPool(const commpool_pool* pools, size_t count,
                                   FunctionRef<Status(Pool&, size_t place)> call, ncclComm* const* passed = nullptr) {
  return ForPools(pools, count,
                  [&](Runtime& runtime, PoolHandles handles) { return OnEach(runtime, handles, call, passed); });
}

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_C_API_FOR_POOLS_H_
