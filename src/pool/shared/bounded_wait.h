// A wait for a device that ends at a deadline, which the driver's own has not.
#ifndef COMMPOOL_SRC_POOL_SHARED_BOUNDED_WAIT_H_
#define COMMPOOL_SRC_POOL_SHARED_BOUNDED_WAIT_H_

#include <cuda.h>

#include <cstdint>
#include <optional>

#include "src/driver/loader.h"

namespace commpool::internal {

// What cuCtxSynchronize answered; nothing where the deadline passed. Then the wait goes on in a thread of its own, so
// the context must stay retained until the process ends. Any thread.
std::optional<CUresult> SynchroniseWithin(const Driver& driver, CUcontext context, uint64_t deadline_ms);

}  // namespace commpool::internal

#endif  // COMMPOOL_SRC_POOL_SHARED_BOUNDED_WAIT_H_
