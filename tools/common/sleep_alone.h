// A pool's sleep and wake in a call for it alone, as the C ABI makes them through AllOrNone.
#pragma once

#include "src/library/pool/pool.h"

namespace commpool::internal {

inline Status SleepAlone(Pool& pool, const SleepRequest& request) {
  MutexLock collective(pool.basis().collective);
  return pool.Sleep(request, [] { return Status(); });
}

inline Status WakeAlone(Pool& pool, const SleepRequest& request = {}) {
  MutexLock collective(pool.basis().collective);
  return pool.Wake(request, [] { return Status(); });
}

}  // namespace commpool::internal
